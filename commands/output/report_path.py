"""Where a report may be written: never into a model's folder, and only where it can be."""

import os
from collections.abc import Iterable
from pathlib import Path

from headcount.model.errors import HeadcountError, WriteError


def check_report_path(output: Path | None, folders: Iterable[Path]) -> None:
    """Raises HeadcountError if `output` lies in one of `folders`, or is a file of one under another
    name, and WriteError if it may not be written. None, for stdout, is fine."""
    if output is None:
        return
    try:
        _check(output, folders)
    except OSError as error:  # a name that is too long, a folder that may not be looked into
        raise HeadcountError(f"{output}: {error.strerror or error}; name another file") from error


def _check(output: Path, folders: Iterable[Path]) -> None:
    for folder in folders:
        if _lies_in(output, folder):
            raise HeadcountError(
                f"{output}: lies in the model folder {folder}; write the report to a file outside"
            )
    if output.is_dir():
        raise HeadcountError(f"{output}: is a folder; name a file for the report")
    parent = output.parent
    if output.is_symlink() and not _leads_somewhere(output):
        raise HeadcountError(f"{output}: is a link that leads nowhere; name another file")
    if not parent.is_dir():
        raise HeadcountError(f"{output}: there is no folder {parent}; make it first")
    writable = os.access(output, os.W_OK) if output.exists() else os.access(parent, os.W_OK)
    if not writable:
        raise WriteError(f"{output}: may not be written to: choose another place")


def _leads_somewhere(link: Path) -> bool:
    real = Path(os.path.realpath(link))  # itself a link: of a loop
    return link.exists() or (real.parent.is_dir() and not real.is_symlink())


def _lies_in(output: Path, folder: Path) -> bool:
    """By the real paths; and links of `folder` that lead elsewhere are files of it, too."""
    home = Path(os.path.realpath(folder))
    named = Path(os.path.realpath(output.parent)) / output.name
    if any(path.is_relative_to(home) for path in (named, Path(os.path.realpath(output)))):
        return True
    if not (output.is_file() and home.is_dir()):
        return False
    return any(entry.exists() and entry.samefile(output) for entry in home.iterdir())
