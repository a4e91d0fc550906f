"""A table as wide as a terminal at most. In this order: headings break, columns go (those with the
highest `Column.drop` first), texts break, those of the first column last, since they say what a row
is of, a last text that would become a tall column stands below its row, and what is still too wide
is written a value a line."""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from headcount.model.text import printable

from .cells import cell
from .report import Table
from .view import broken, columns

_GAP = 2  # between columns
_TEXT = 24  # columns that a text keeps before a column is left out for it
_NAME = 36  # which the first keeps, if it is a text
_LEAST = 10  # and at least
_TALL = 4  # lines of a cell; a text of more stands below its row


class _Column(NamedTuple):
    title: str
    drop: int
    is_right: bool
    is_first: bool
    cells: tuple[str, ...]

    @property
    def content(self) -> int:
        """The width of its cells, or of the longest part of its title."""
        return max(columns(text) for text in (*self.cells, *_parts(self.title), ""))

    @property
    def is_blank(self) -> bool:
        return bool(self.cells) and not any(self.cells)

    @property
    def comfortable(self) -> int:
        kept = _NAME if self.is_first else _TEXT
        return self.content if self.is_right else min(self.content, kept)


def terminal_table(table: Table, width: int | None, rows: int | None = None) -> Iterator[str]:
    """The lines of the table, or of as many `rows` of it; then what columns were left out."""
    found = _columns(table, rows)
    kept = _kept(found, width)
    widths = _widths(kept, width)
    if widths is None:
        yield from _records(kept, width)
    elif width is not None and _is_tall(kept, widths):
        yield from _with_texts_below(kept, width)
    else:
        yield from _grid(kept, widths)
    hidden = max(len(table.rows) - rows, 0) if rows is not None else 0
    how = f"--details, {table.asked_for}" if table.asked_for else "--details"
    left = [f"{hidden:,} more {'row' if hidden == 1 else 'rows'} ({how})"] if hidden else []
    if names := [column.title for column in found if column not in kept]:
        left.append(f"{', '.join(names)} (--wide)")
    if left:
        yield from broken(f"… {', '.join(left)}", width, 2)


def _columns(table: Table, rows: int | None) -> list[_Column]:
    shown = table.first(rows)
    return [
        _Column(
            title=printable(column.title),
            drop=column.drop,
            is_right=bool(table.rows) and right,
            is_first=at == 0,
            cells=tuple(printable(cell(row[at], column.unit)) for row in shown),
        )
        for at, (column, right) in enumerate(zip(table.columns, table.numeric, strict=True))
    ]


def _kept(found: list[_Column], width: int | None) -> list[_Column]:
    """Without those that may go and have nothing in the rows that are shown, nor those that must;
    what goes alike goes together."""
    if width is None:
        return found
    kept = [column for column in found if not (column.drop and column.is_blank)]
    while _total([column.comfortable for column in kept]) > width:
        most = max(column.drop for column in kept)
        if most == 0:
            break
        kept = [column for column in kept if column.drop < most]
    return kept


def _widths(kept: Sequence[_Column], width: int | None) -> list[int] | None:
    """The width of each column; None where no widths suffice."""
    whole = [max(column.content, columns(column.title)) for column in kept]
    if width is None or _total(whole) <= width:
        return whole
    widths = [column.content for column in kept]
    texts = [at for at, column in enumerate(kept) if not column.is_right]
    named = len(kept) > 1 and not kept[0].is_right and widths[0] <= _NAME
    for broken_texts in (texts[1:], texts) if named else (texts,):
        _break(widths, broken_texts, width)
    return widths if _total(widths) <= width else None


def _break(widths: list[int], texts: Sequence[int], width: int) -> None:
    """Narrows the columns `texts`, the widest first, until all are at most `width`, if they can."""
    while (excess := _total(widths) - width) > 0:
        widest = max(texts, key=lambda at: widths[at], default=None)
        if widest is None or widths[widest] <= _LEAST:
            return
        others = [widths[at] for at in texts if at != widest]
        # not below the next, so that two long texts share what there is
        least = max(_LEAST, min(max(others, default=0), widths[widest] - 1))
        widths[widest] = max(least, widths[widest] - excess)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _grid(kept: Sequence[_Column], widths: Sequence[int]) -> Iterator[str]:
    """A heading, a rule and the rows, each cell in as many lines as it takes."""
    from tabulate import tabulate

    titles = [_heading(column.title, width) for column, width in zip(kept, widths, strict=True)]
    cells = zip(*(column.cells for column in kept), strict=True) if kept else ()
    rows = [[_cell(text, width) for text, width in zip(row, widths, strict=True)] for row in cells]
    text = tabulate(
        [titles, ["-" * width for width in widths], *rows],
        tablefmt="plain",
        colalign=["right" if column.is_right else "left" for column in kept],
        disable_numparse=True,
    )
    yield from (line.rstrip() for line in text.split("\n"))


def _is_tall(kept: Sequence[_Column], widths: Sequence[int]) -> bool:
    """Whether the last column is a text that is squeezed into many lines."""
    last = kept[-1]
    tallest = max((_height(text, widths[-1]) for text in last.cells), default=0)
    return len(kept) > 1 and not last.is_right and tallest > _TALL


def _with_texts_below(kept: Sequence[_Column], width: int) -> Iterator[str]:
    """The grid of the other columns, and below each row the text of the last, which is all of it
    that has no heading."""
    others, texts = kept[:-1], kept[-1].cells
    widths = _widths(others, width)
    if widths is None:
        yield from _records(kept, width)
        return
    lines = _grid(others, widths)
    titles = [_heading(column.title, size) for column, size in zip(others, widths, strict=True)]
    yield from islice(lines, max(title.count("\n") + 1 for title in titles) + 1)
    for at, text in enumerate(texts):
        cells = [column.cells[at] for column in others]
        yield from islice(lines, max(map(_height, cells, widths)))
        if text:
            yield from broken(f"  {text}", width, 2)


def _height(text: str, width: int) -> int:
    return _cell(text, width).count("\n") + 1


def _parts(title: str) -> list[str]:
    """Where a heading may be broken: behind blanks, and strokes between words (not K/V)."""
    return re.sub(r"(?<=\w{4}/)(?=\w{4})", " ", title).split()


def _heading(title: str, width: int) -> str:
    if columns(title) <= width:
        return title
    lines = [""]
    for part in _parts(title):
        glue = " " if lines[-1] and not lines[-1].endswith("/") else ""
        if columns(lines[-1] + glue + part) <= width or not lines[-1]:
            lines[-1] += glue + part
        else:
            lines.append(part)
    return "\n".join(lines)


def _cell(text: str, width: int) -> str:
    """Options of a command stay whole."""
    return "\n".join(broken(text, width, at_hyphens=" --" not in text))


def _records(kept: Sequence[_Column], width: int | None) -> Iterator[str]:
    """A line a value, a block a row."""
    side = max(columns(column.title) for column in kept)
    for at in range(len(kept[0].cells)):
        if at:
            yield ""
        for column in kept:
            yield from broken(f"{column.title:<{side}}  {column.cells[at]}", width, side + 2)
