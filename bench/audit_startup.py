"""CPU time of `audit gpt2` against that of importing click and tabulate, in alternating runs.

    python bench/audit_startup.py [RUNS]

Prints the median CPU seconds (user + system) of both and the median of the ratios pair by pair:
machines are noisy, a ratio of neighbours is not.
"""

import os
import subprocess
import sys
from statistics import median

BASE = [sys.executable, "-c", "import click, tabulate"]
AUDIT = [sys.executable, "-c", "from headcount.cli import audit_main; audit_main()", "gpt2"]


def cpu_seconds(command: list[str]) -> float:
    """User and system time of one finished process."""
    before = os.times()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return (after.children_user - before.children_user) + (
        after.children_system - before.children_system
    )


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    for command in (BASE, AUDIT):  # compiles and warms what both read
        cpu_seconds(command)
    pairs = [(cpu_seconds(BASE), cpu_seconds(AUDIT)) for _ in range(runs)]
    print(f"import click, tabulate   {median(base for base, _ in pairs):.3f} s CPU")
    print(f"audit gpt2               {median(audit for _, audit in pairs):.3f} s CPU")
    ratio = median(audit / base for base, audit in pairs)
    print(f"ratio over {runs} pairs      {ratio:.2f}")


if __name__ == "__main__":
    main()
