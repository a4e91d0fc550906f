"""The parts of a report as lines of text; what a model says of itself is shown by `show`."""

from collections.abc import Callable

from .cells import cell
from .report import Fact, Finding, Table


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
