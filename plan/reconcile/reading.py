"""The lines of a log that may be huge or hostile: bounded in number and length."""

import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from headcount.model import limits
from headcount.model.errors import HeadcountError

_UTF_16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_COLOURS = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")


def read_lines(name: str) -> Iterator[str]:
    """Lines of the file `name`, or of standard input for `-`; what is beyond the bounds is skipped.

    Raises HeadcountError for a file that cannot be read.
    """
    if name == "-":
        yield from _lines(sys.stdin.buffer)
        return
    try:
        with Path(name).open("rb") as file:
            yield from _lines(file)
    except OSError as error:
        raise HeadcountError(f"{name}: cannot be read: {error.strerror}") from error


def _lines(file: BinaryIO) -> Iterator[str]:
    begin = file.read(2)
    if begin in _UTF_16:  # as PowerShell redirects
        text = io.TextIOWrapper(file, _UTF_16[begin], "replace")
        try:
            yield from _decoded(text)
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
            yield _COLOURS.sub("", line.decode("utf-8", "replace"))
        is_start = line.endswith((b"\n", b"\r"))


def _decoded(file: io.TextIOWrapper) -> Iterator[str]:
    left, is_start = limits.LOG_BYTES.most // 2, True
    while left > 0 and (line := file.readline(min(limits.LOG_LINE_BYTES.most, left))):
        left -= len(line)
        if is_start:
            yield _COLOURS.sub("", line)
        is_start = line.endswith("\n")
