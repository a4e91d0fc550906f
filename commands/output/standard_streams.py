"""Standard input, output and error, where the caller has closed one or a full disk is behind it."""

import io
import os
import sys
from typing import Any


class _NeverFailing(io.FileIO):
    """What is said here is lost if nobody can hear it, which is no reason for work to fail."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data) or len(data)
        except OSError:
            return len(data)


def settle_streams() -> None:
    """Takes the place of streams that are closed, before a file that is opened does: what a library
    writes on descriptor 2 would get into it. Writing to a closed stdout fails as to a full one."""
    for descriptor, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        if not _is_open(descriptor):
            _take(descriptor, flags)
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is sys.__stderr__ and os.name != "nt":  # not one that a test has put there
        sys.stderr = _never_failing(sys.stderr)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _take(descriptor: int, flags: int) -> None:
    found = os.open(os.devnull, flags)
    if found != descriptor:
        os.dup2(found, descriptor)
        os.close(found)


def _never_failing(stream: "io.TextIOBase | None") -> io.TextIOWrapper:
    raw = _NeverFailing(2, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=getattr(stream, "encoding", None) or "utf-8",
        errors="backslashreplace",
        line_buffering=True,
    )
