"""The parts of a report as lines of text; what a model says of itself is shown by `show`."""

from collections.abc import Callable, Iterator

from .cells import cell
from .report import Fact, Finding, HeatMap, Table

_LINE = 96  # characters of cells and the spaces between them, at most, where no width is given


def fact_line(fact: Fact) -> str:
    """The value, and the note behind it, with nothing escaped but what is invisible."""
    value = cell(fact.value, fact.unit)
    return f"{value} ({fact.note})" if fact.note else value


def finding_line(finding: Finding) -> str:
    return f"{finding.code} {finding.severity}: {finding.where}: {finding.message}; {finding.hint}"


def grid(table: Table, style: str, show: Callable[[str], str]) -> str:
    """The table in a style of tabulate."""
    from tabulate import tabulate

    return tabulate(
        [
            [
                show(cell(value, column.unit))
                for value, column in zip(row, table.columns, strict=True)
            ]
            for row in table.rows
        ],
        headers=[show(column.title) for column in table.columns],
        tablefmt=style,
        colalign=["right" if right else "left" for right in table.numeric] if table.rows else None,
        disable_numparse=True,
    )


def heat_map_lines(
    heat_map: HeatMap, show: Callable[[str], str], width: int | None = None
) -> Iterator[str]:
    """The map as text: a line a row, broken where it has many cells, and the legend."""
    longest = max(map(len, heat_map.cells), default=0)
    cells = [[show(cell.text) for cell in row] for row in heat_map.cells]
    side = max(map(len, (heat_map.row_title, *heat_map.rows)))
    widest = max((len(text) for row in cells for text in row), default=0)
    room = _LINE if width is None else width - side - 1
    fitting = max(1, room // (max(widest, len(str(longest - 1))) + 1))
    for start in range(0, longest, fitting):
        numbers = [str(n) for n in range(start, min(start + fitting, longest))]
        part = [row[start : start + fitting] for row in cells]
        width = max(len(text) for row in (numbers, *part) for text in row)
        for name, row in zip((heat_map.row_title, *heat_map.rows), (numbers, *part), strict=True):
            if row:
                line = " ".join(f"{text:>{width}}" for text in row)
                yield f"{show(name):>{side}}  {line}".rstrip()
        yield ""
    yield "; ".join(f"{text} {meaning}" for text, meaning, _ in heat_map.legend)
