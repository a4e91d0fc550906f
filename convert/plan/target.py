"""The target folder: may it be written, and does it fit?"""

import os
import shutil
from pathlib import Path

from headcount.model.errors import WriteError
from headcount.model.units import format_bytes

from .errors import TargetError
from .existing import read_existing

# For JSON files, directory entries and rounding up to blocks.
SLACK = 2**20


def check_target(source: Path, target: Path) -> None:
    """Raises TargetError unless `target` can become a new folder that is not part of `source`, or
    is one that an earlier conversion wrote."""
    try:
        _check_place(source, target)
    except OSError as error:  # a name that is too long, a loop of links
        raise TargetError(f"{target}: {error.strerror}; name another folder") from error


def _check_place(source: Path, target: Path) -> None:
    if target.is_symlink():
        raise TargetError(f"{target}: is a link; name the folder to make")
    if target.exists() and not target.is_dir():
        raise TargetError(f"{target}: exists and is not a folder; name one that does not exist yet")
    real, home = target.resolve(), source.resolve()
    if real == home or (target.exists() and target.samefile(source)):
        raise TargetError(
            f"{target}: is the source itself; it is never changed: name another folder"
        )
    if real.is_relative_to(home):
        raise TargetError(f"{target}: lies inside the source {source}; name a folder outside it")
    if home.is_relative_to(real):
        raise TargetError(f"{target}: the source {source} lies inside it; name another folder")
    read_existing(target)
    _check_parent(real.parent)


def _check_parent(parent: Path) -> None:
    if not parent.is_dir():
        raise TargetError(f"{parent}: no such folder: make it first")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise WriteError(f"{parent}: may not be written to: choose another place or ask its owner")


def check_space(target: Path, needed: int) -> None:
    """Raises WriteError with both numbers if the file system has less than `needed` bytes free."""
    needed += SLACK
    free = shutil.disk_usage(target.resolve().parent).free
    if free < needed:
        raise WriteError(
            f"{target.resolve().parent}: {format_bytes(needed)} ({needed:,} bytes) are needed,"
            f" {format_bytes(free)} ({free:,} bytes) are free"
        )
