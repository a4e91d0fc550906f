"""CPU time of `plan` of a catalogue model against that of importing click and tabulate.

    python bench/plan_startup.py [RUNS]

Prints the medians and the median of the ratios of neighbouring runs, without an engine and with.
"""

import sys
from statistics import median

from audit_startup import BASE, cpu_seconds

_RUN = "import sys; from headcount.cli import main; main(sys.argv[1:], prog_name='headcount')"
PLAN = [sys.executable, "-c", _RUN, "plan", "llama-3-8b", "--device", "h100", "--context", "8k"]
COMMANDS = {
    "plan llama-3-8b": PLAN,
    "plan llama-3-8b --engine vllm": [*PLAN, "--engine", "vllm"],
    "plan llama-3-8b --engine vllm, json": [*PLAN, "--engine", "vllm", "--format", "json"],
}


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    for name, command in COMMANDS.items():
        cpu_seconds(command)
        pairs = [(cpu_seconds(BASE), cpu_seconds(command)) for _ in range(runs)]
        ratio = median(plan / base for base, plan in pairs)
        print(f"{name:38} {median(plan for _, plan in pairs):.3f} s CPU, ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
