"""`headcount` in two processes of a launcher, each with one thread, as sums depend on it."""

import os
import subprocess
import sys
from pathlib import Path

_TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
_BROKEN = """
import os, sys
from headcount.cli import main
{patch}
main(sys.argv[1:], prog_name="headcount")
"""


def one_thread() -> dict[str, str]:
    """The environment of a process that computes as those of a launcher do."""
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def in_two(*words: object, script: Path | None = None) -> "subprocess.CompletedProcess[str]":
    """Runs `headcount` with these words, or a script that runs it, under torchrun."""
    what = ("-m", "headcount") if script is None else (str(script),)
    return _run([*_TORCHRUN, *what, *map(str, words)])


def in_one(*words: object) -> "subprocess.CompletedProcess[str]":
    """The same in one process."""
    return _run(["-m", "headcount", *map(str, words)])


def broken(path: Path, patch: str) -> Path:
    """A script at `path` that runs `headcount` with something broken by `patch`."""
    path.write_text(_BROKEN.format(patch=patch))
    return path


def _run(words: list[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=600,
        env=one_thread(),
        check=False,
    )
