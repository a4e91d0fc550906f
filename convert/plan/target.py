"""The target folder: may it be written, and does it fit?"""

import os
import shutil
from contextlib import suppress
from pathlib import Path

from headcount.model.errors import WriteError
from headcount.model.units import format_bytes

from .errors import TargetError
from .existing import read_existing
from .leftovers import own_folder, real_place
from .mount_points import is_mount_point

# For JSON files, directory entries and rounding up to blocks.
SLACK = 2**20
# Folders, lock, journal, and JSON files, each of which has a temporary name first.
SLACK_FILES = 16


def check_target(source: Path, target: Path) -> None:
    """Raises TargetError unless `target` can become a new folder that is not part of `source`, or
    is one that an earlier conversion wrote."""
    try:
        _check_place(source, target)
    except (OSError, ValueError) as error:  # a name that is too long, a loop of links, NUL
        reason = getattr(error, "strerror", None) or str(error)
        raise TargetError(f"{target}: {reason}; name another folder") from error


def _check_place(source: Path, target: Path) -> None:
    if target.is_symlink():
        raise TargetError(f"{target}: is a link; name the folder to make")
    if target.exists() and not target.is_dir():
        raise TargetError(f"{target}: exists and is not a folder; name one that does not exist yet")
    real, home = real_place(target), Path(os.path.realpath(source))
    if real.exists() and not target.exists():  # through `..` of a folder that is not there
        raise TargetError(f"{target}: means {real}, which exists; name it so, or another folder")
    if real == home or (target.exists() and target.samefile(source)):
        raise TargetError(
            f"{target}: is the source itself; it is never changed: name another folder"
        )
    if real.is_relative_to(home):
        raise TargetError(f"{target}: lies inside the source {source}; name a folder outside it")
    if home.is_relative_to(real):
        raise TargetError(f"{target}: the source {source} lies inside it; name another folder")
    _check_replaceable(target)
    read_existing(target)
    _check_parent(real.parent)
    with suppress(FileNotFoundError):
        own_folder(real, "unpickled").lstat()  # the longest of the names that will lie beside it


def _check_replaceable(target: Path) -> None:
    """A finished folder gets the target's name by one rename, which is what makes it appear whole:
    these names cannot be given away."""
    for what, holds in (("a mount point", is_mount_point), ("the current folder", _is_current)):
        if target.is_dir() and holds(target):
            raise TargetError(
                f"{target}: is {what}, whose place a finished folder cannot take; name a folder"
                f" inside it, such as {target / 'model'}"
            )


def _is_current(target: Path) -> bool:
    return target.samefile(".")


def _check_parent(parent: Path) -> None:
    if not parent.is_dir():
        is_there = os.path.lexists(parent)
        what = (
            "is not a folder: name another place" if is_there else "no such folder: make it first"
        )
        raise TargetError(f"{parent}: {what}")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise WriteError(f"{parent}: may not be written to: choose another place or ask its owner")


def check_space(target: Path, needed: int, files: int) -> None:
    """Raises WriteError with both numbers if the file system that `target` will lie on has less
    than `needed` bytes free, or cannot hold so many more `files`."""
    needed, files = needed + SLACK, files + SLACK_FILES
    parent = real_place(target).parent
    free, free_files = shutil.disk_usage(parent).free, free_file_count(parent)
    if free < needed:
        raise WriteError(
            f"{parent}: {format_bytes(needed)} ({needed:,} bytes) are needed,"
            f" {format_bytes(free)} ({free:,} bytes) are free"
        )
    if free_files is not None and free_files < files:
        raise WriteError(
            f"{parent}: {files:,} files are to be made, and its file system has room for"
            f" {free_files:,} more (inodes): remove some, or name another place"
        )


def free_file_count(folder: Path) -> int | None:
    """How many more files the file system can hold; None where it has no such limit, or does not
    tell. Raises OSError."""
    if not hasattr(os, "statvfs"):
        return None
    found = os.statvfs(folder)
    return found.f_favail if found.f_files else None
