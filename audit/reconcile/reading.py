"""The lines of a log that may be huge or hostile: bounded in number and length."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ..errors import HeadcountError

MOST_BYTES, LONGEST_LINE = 256 * 2**20, 64 * 2**10
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
    left, is_start = MOST_BYTES, True
    while left > 0 and (line := file.readline(min(LONGEST_LINE, left))):
        left -= len(line)
        if is_start:  # the rest of a line that is too long is no line of its own
            yield _COLOURS.sub("", line.decode("utf-8", "replace"))
        is_start = line.endswith((b"\n", b"\r"))
