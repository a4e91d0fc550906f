"""A command in a process of its own: how long it computed, and the most memory that it held."""

import os
import subprocess
import sys
from typing import NamedTuple

_CHILD = """
import resource, sys
from headcount.cli import main
try:
    main(sys.argv[1:], standalone_mode=True)
finally:
    used = resource.getrusage(resource.RUSAGE_SELF)
    peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    sys.stdout.flush()
    print("\\n", used.ru_utime + used.ru_stime, peak.split()[1], file=sys.stderr)
"""


class Measured(NamedTuple):
    """`seconds` of a processor, `peak` bytes of memory."""

    seconds: float
    peak: int
    exit_code: int
    stdout: str
    stderr: str


def measure(arguments: list[str]) -> Measured:
    """Runs `headcount` with these arguments. VmHWM and not ru_maxrss, in which a child begins with
    the peak of its parent."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, *arguments],
        capture_output=True,
        text=True,
        errors="replace",
        env={**os.environ, "PYTHONHASHSEED": "0"},
        check=False,
    )
    said, _, figures = done.stderr.rstrip("\n").rpartition("\n")
    seconds, peak = figures.split()
    return Measured(float(seconds), int(peak) * 1024, done.returncode, done.stdout, said)
