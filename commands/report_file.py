"""A report in a file: its new content whole, or the old one."""

import errno
import os
import stat
import uuid
from pathlib import Path

from headcount.model.errors import WriteError
from headcount.running.signals import held_signals


def write_report(output: Path, text: str) -> None:
    """Writes `text` to `output`. A regular file is replaced when all is written. A device, a pipe,
    a link, or a file with several names is written to as it is; a pipe that nobody reads is not
    waited for. Raises WriteError."""
    data = text.encode("utf-8", "backslashreplace")
    try:
        found = _stat(output)
        if _is_replaceable(output, found):
            with held_signals():
                _replace(output, data, found)
        else:
            _write_through(output, data)
    except OSError as error:
        if error.errno == errno.ENXIO:
            reason = "is a pipe that nobody reads: start its reader first"
            raise WriteError(f"{output}: {reason}") from error
        raise WriteError(f"{output}: cannot be written: {error.strerror or error}") from error


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
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


def _replace(output: Path, data: bytes, found: os.stat_result | None) -> None:
    new = output.with_name(f".headcount-{uuid.uuid4().hex}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        if found is not None:
            new.chmod(stat.S_IMODE(found.st_mode))
        new.replace(output)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def _write_through(output: Path, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NONBLOCK", 0)
    descriptor = os.open(output, flags, 0o666)
    with os.fdopen(descriptor, "wb") as file:
        if os.name != "nt":
            os.set_blocking(descriptor, True)
        file.write(data)
