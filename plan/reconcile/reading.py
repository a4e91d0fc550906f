"""The lines of a log that may be huge or hostile: bounded in number and length."""

import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from headcount.model import limits
from headcount.model.errors import HeadcountError, bounded

_UTF_16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_COLOURS = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")


def read_lines(name: str) -> Iterator[str]:
    """Lines of the file `name`, or of standard input for `-`; what is beyond the bounds is skipped,
    and stderr says so of a log that is longer.

    Raises HeadcountError for a file that cannot be read.
    """
    if name == "-":
        yield from _lines(sys.stdin.buffer, "standard input")
        return
    try:
        with Path(name).open("rb") as file:
            yield from _lines(file, name)
    except OSError as error:
        raise HeadcountError(f"{name}: cannot be read: {error.strerror}") from error


def _lines(file: BinaryIO, name: str) -> Iterator[str]:
    begin = file.read(2)
    if begin in _UTF_16:  # as PowerShell redirects
        text = io.TextIOWrapper(file, _UTF_16[begin], "replace")
        try:
            yield from _decoded(text, name)
        finally:
            text.detach()  # its opener closes it
        return
    left, is_start = limits.LOG_BYTES.most, True
    while left > 0 and (
        line := begin + file.readline(min(limits.LOG_LINE_BYTES.most - len(begin), left))
    ):
        begin = b""
        left -= len(line)
        if is_start:  # the rest of a line that is too long is no line of its own
            yield _plain(line.decode("utf-8", "replace"))
        is_start = line.endswith((b"\n", b"\r"))
    _say_what_is_left(left, name)


def _decoded(file: io.TextIOWrapper, name: str) -> Iterator[str]:
    left, is_start = limits.LOG_BYTES.most // 2, True
    while left > 0 and (line := file.readline(min(limits.LOG_LINE_BYTES.most, left))):
        left -= len(line)
        if is_start:
            yield _plain(line)
        is_start = line.endswith("\n")
    _say_what_is_left(left, name)


def _plain(line: str) -> str:
    return _COLOURS.sub("", line) if "\x1b" in line else line


def _say_what_is_left(left: int, name: str) -> None:
    if left <= 0:
        print(bounded(limits.LOG_BYTES.refusal(name)), file=sys.stderr)
