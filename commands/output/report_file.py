"""A report in a file: its new content whole, or the old one."""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

from headcount.convert.plan.leftovers import left_files, own_folder
from headcount.model.errors import WriteError
from headcount.running.signals import held_signals

_KIND = "report"


def write_report(output: Path, text: str) -> None:
    """Writes `text` to `output`. A regular file, or the one that a link leads to, is replaced when
    all is written. A device, a pipe, or a file with several names is written to as it is; a pipe
    that nobody reads is not waited for. Raises WriteError."""
    data = text.encode("utf-8", "backslashreplace")
    try:
        found = _stat(output)
        place = Path(os.path.realpath(output))
        if _is_replaceable(place, found):
            _remove_leftovers(place)
            with held_signals():
                _replace_or_write(place, data, found)
        else:
            _write_through(output, data)
    except OSError as error:
        if error.errno == errno.ENXIO:
            reason = "is a pipe that nobody reads: start its reader first"
            raise WriteError(f"{output}: {reason}") from error
        raise WriteError(f"{output}: cannot be written: {error.strerror or error}") from error


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _is_replaceable(output: Path, found: os.stat_result | None) -> bool:
    if found is None:
        return os.access(output.parent, os.W_OK)
    return (
        stat.S_ISREG(found.st_mode)
        and found.st_nlink == 1
        and os.access(output, os.W_OK)
        and os.access(output.parent, os.W_OK)
        and (os.name == "nt" or found.st_uid == os.geteuid())
    )


def _replace_or_write(output: Path, data: bytes, found: os.stat_result | None) -> None:
    try:
        _replace(output, data, found)
    except OSError as error:
        if error.errno != errno.EBUSY:  # a file that is mounted by itself keeps its name
            raise
        _write_through(output, data)


def _replace(output: Path, data: bytes, found: os.stat_result | None) -> None:
    new = own_folder(output, _KIND)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)  # or a power cut could leave the name with nothing in it
        if found is not None:
            new.chmod(stat.S_IMODE(found.st_mode))
        new.replace(output)
    except BaseException:
        for _ in range(2):  # a disk that fails once may not fail twice
            with suppress(OSError):
                new.unlink(missing_ok=True)
        raise


def _remove_leftovers(output: Path) -> None:
    """What runs left that were killed while they wrote this report."""
    for left in left_files(output, _KIND):
        with suppress(OSError):
            left.unlink(missing_ok=True)


def _write_through(output: Path, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NONBLOCK", 0)
    descriptor = os.open(output, flags, 0o666)
    with os.fdopen(descriptor, "wb") as file:
        if os.name != "nt":
            os.set_blocking(descriptor, True)
        file.write(data)
