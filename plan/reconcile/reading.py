"""The lines of a log that may be huge or hostile: bounded in number and length.

A log is read in blocks of whole lines. Words are looked for in a block at once, which takes a
thousandth of the time that lines would, and only lines that have some are taken apart.
"""

import codecs
import gzip
import re
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from headcount.model import limits
from headcount.model.errors import HeadcountError, bounded

_GZIP = b"\x1f\x8b"
_UTF_16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_COLOURS = re.compile(rb"\x1b\[[0-9;]{0,20}[A-Za-z]")
_BLOCK = 2**20


class FoundLine(NamedTuple):
    """A line, and which of the words that were looked for it has."""

    text: str
    words: Sequence[int]


def read_lines(name: str) -> Iterator[str]:
    """Lines of the file `name`, or of standard input for `-`; what is beyond the bounds is skipped,
    and stderr says so of a log that is longer.

    Raises HeadcountError for a file that cannot be read.
    """
    for block in _blocks_of(name):
        for line in block.splitlines(keepends=True):
            yield _plain(line[: limits.LOG_LINE_BYTES.most])


def lines_with(name: str, words: Sequence[str]) -> Iterator[FoundLine]:
    """Those lines of the log that have some of `words`."""
    wanted = [word.encode() for word in words]
    for block in _blocks_of(name):  # a colour may lie within words
        yield from _lines_with(_COLOURS.sub(b"", block) if b"\x1b" in block else block, wanted)


def _lines_with(block: bytes, wanted: Sequence[bytes]) -> Iterator[FoundLine]:
    found: dict[int, list[int]] = {}
    for number, word in enumerate(wanted):
        at = block.find(word)
        while at >= 0:
            found.setdefault(block.rfind(b"\n", 0, at) + 1, []).append(number)
            end = block.find(b"\n", at)
            at = block.find(word, end) if end >= 0 else -1
    for start in sorted(found):
        end = block.find(b"\n", start)
        yield FoundLine(_plain(block[start : end if end >= 0 else None]), found[start])


def _blocks_of(name: str) -> Iterator[bytes]:
    if name == "-":
        yield from _blocks(sys.stdin.buffer, "standard input")
        return
    try:
        with Path(name).open("rb") as file:
            packed = file.peek(2)[:2] == _GZIP
            yield from _blocks(gzip.GzipFile(fileobj=file) if packed else file, name)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise HeadcountError(f"{name}: a damaged gzip file: {error}") from error
    except OSError as error:
        raise HeadcountError(f"{name}: cannot be read: {error.strerror}") from error


def _blocks(file: BinaryIO | gzip.GzipFile, name: str) -> Iterator[bytes]:
    """Whole lines of UTF-8, each cut to the limit."""
    rest, left, is_cut = b"", limits.LOG_BYTES.most, False
    most = limits.LOG_LINE_BYTES.most
    decoder = None
    while left > 0 and (data := file.read(min(_BLOCK, left))):
        if left == limits.LOG_BYTES.most and data[:2] in _UTF_16:  # as PowerShell redirects
            decoder = codecs.getincrementaldecoder(_UTF_16[data[:2]])("replace")
            data = data[2:]
            left -= 2
        left -= len(data)
        if decoder is not None:
            data = decoder.decode(data).encode("utf-8", "replace")
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if is_cut:  # the rest of a line that is too long is no line of its own
            _, end, data = data.partition(b"\n")
            is_cut = not end
        lines, end, rest = (rest + data).rpartition(b"\n")
        if len(rest) > most:
            lines, end, rest, is_cut = lines + end + rest[:most], b"\n", b"", True
        if lines or end:
            yield _cut(lines + end, most)
    if rest:
        yield _cut(rest, most)
    if left <= 0:
        print(bounded(limits.LOG_BYTES.refusal(name)), file=sys.stderr)


def _cut(block: bytes, most: int) -> bytes:
    """Each line of `block` without what is beyond the limit."""
    at, kept, parts = 0, 0, []
    while at + most < len(block):
        end = block.rfind(b"\n", at, at + most)
        if end < 0:  # the line that begins at `at` is longer
            parts += [block[kept : at + most], b"\n"]
            end = block.find(b"\n", at + most)
            kept = end + 1 if end >= 0 else len(block)
            end = end if end >= 0 else len(block)
        at = end + 1
    return b"".join([*parts, block[kept:]]) if parts else block


def _plain(line: bytes) -> str:
    return (_COLOURS.sub(b"", line) if b"\x1b" in line else line).decode("utf-8", "replace")
