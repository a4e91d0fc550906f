"""How a report is shown in a terminal, and lines broken to its width."""

import os
import sys
from collections.abc import Iterator
from shutil import get_terminal_size
from typing import NamedTuple

_PAD = "\0"  # stands behind a character that is two columns wide while lines are broken


class View(NamedTuple):
    """`width` in columns, None without a bound; `details`: all there is, not what fits on a screen;
    `color`: with codes of colours; `blocks`: the output can show block characters; `tells`: a
    report ends with its answer."""

    width: int | None = None
    details: bool = True
    color: bool = False
    blocks: bool = False
    tells: bool = True


def output_width() -> int | None:
    """The columns of standard output: those of a terminal, or as COLUMNS says; None: no bound."""
    if not sys.stdout.isatty() and not os.environ.get("COLUMNS", "").isdecimal():
        return None
    return max(get_terminal_size().columns, 20)


def broken(
    text: str, width: int | None, indent: int = 0, *, at_hyphens: bool = False
) -> Iterator[str]:
    """`text` in lines of at most `width` columns, those after the first behind `indent` blanks. A
    command is not broken at its hyphens."""
    if width is None or columns(text) <= width:
        yield text
        return
    from textwrap import wrap

    lines = wrap(
        "".join(char + _PAD * (columns(char) - 1) for char in text),
        max(width, indent + 1),
        subsequent_indent=" " * indent,
        break_on_hyphens=at_hyphens,
        replace_whitespace=False,
    )
    yield from (line.replace(_PAD, "") for line in lines)


def columns(text: str) -> int:
    """How many columns of a terminal `text` takes."""
    if text.isascii():
        return len(text)
    import unicodedata

    return sum(1 + (unicodedata.east_asian_width(char) in "WF") for char in text)
