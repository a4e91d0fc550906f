"""`python -m headcount`, which launchers of several processes can start.

Python puts the current folder first on the path for `-m`, where a model's files may lie: a torch.py
there is not to be imported. What it imports before this line itself only `python -P` keeps safe.
"""

import os
import sys


def _leave_current_folder() -> None:
    """Takes away the entry that `-m` has made. One of PYTHONPATH is the user's own, as with -P."""
    if sys.flags.isolated or getattr(sys.flags, "safe_path", False):
        return
    try:
        current = os.getcwd()
    except OSError:  # it was removed: Python has made no entry
        return
    if sys.path[:1] in ([current], [""]):
        del sys.path[0]


_leave_current_folder()

from headcount.cli import main

main(prog_name="headcount")
