"""Standard input, output and error, where the caller has closed one or a full disk is behind it."""

import io
import os
import sys
from typing import Any

from headcount.report.view import broken

from .waiting import end_waiting


class _NeverFailing(io.FileIO):
    """What is said here is lost if nobody can hear it, which is no reason for work to fail."""

    def write(self, data: Any, /) -> int:
        end_waiting()
        try:
            return super().write(data) or len(data)
        except OSError:
            return len(data)


class _AsWideAsTheTerminal(io.TextIOWrapper):
    """Lines that are longer are broken between words. A bar, which returns to its line's start,
    minds its own width."""

    def write(self, text: str, /) -> int:
        if "\r" not in text:
            lines = ("\n".join(broken(line, _columns())) for line in text.split("\n"))
            text = "\n".join(lines)
        return super().write(text)


def _columns() -> int | None:
    """Of the terminal that stderr is; stdout may be a pipe."""
    asked = os.environ.get("COLUMNS", "")
    try:
        return max(int(asked) if asked.isdecimal() else os.get_terminal_size(2).columns, 20)
    except OSError:
        return None


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
    kind = _AsWideAsTheTerminal if raw.isatty() else io.TextIOWrapper
    return kind(
        io.BufferedWriter(raw),
        encoding=getattr(stream, "encoding", None) or "utf-8",
        errors="backslashreplace",
        line_buffering=True,
    )
