"""CPU time of `audit` and `plan` against that of importing click and tabulate, in alternating runs.

    python bench/audit_startup.py [RUNS]

Prints the median CPU seconds (user + system) of each and the median of the ratios pair by pair:
machines are noisy, a ratio of neighbours is not. Compile the package first where Python may not
write its byte code.
"""

import resource
import subprocess
import sys
from statistics import median

BASE = [sys.executable, "-c", "import click, tabulate"]
AUDIT = [sys.executable, "-c", "from headcount.cli import audit_main; audit_main()", "gpt2"]
_MAIN = "from headcount.cli import main; main(prog_name='headcount')"
PLAN = [*(sys.executable, "-c", _MAIN, "plan", "llama-3-8b"), *("--device", "h100")]
COMMANDS = {
    "audit gpt2": AUDIT,
    "plan llama-3-8b": PLAN,
    "plan llama-3-8b, vllm": [*PLAN, "--engine", "vllm"],
}


def cpu_seconds(command: list[str]) -> float:
    """User and system time of one finished process, to the microsecond."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    cpu_seconds(BASE)  # compiles and warms what it reads
    for name, command in COMMANDS.items():
        cpu_seconds(command)
        pairs = [(cpu_seconds(BASE), cpu_seconds(command)) for _ in range(runs)]
        ratio = median(each / base for base, each in pairs)
        seconds = median(each for _, each in pairs)
        print(f"{name:24} {seconds:.3f} s CPU, ratio over {runs} pairs {ratio:.2f}")


if __name__ == "__main__":
    main()
