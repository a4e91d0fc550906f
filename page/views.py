"""A report as the page shows it: texts as the other renderers write them, and numbers where the
page draws."""

from typing import Any

from headcount.model.text import printable
from headcount.model.units import format_bytes
from headcount.report.cells import cell
from headcount.report.report import (
    Bar,
    Chart,
    Column,
    Fact,
    HeatMap,
    Report,
    Table,
    counts_in_words,
    shown,
)


def view_of(report: Report) -> dict[str, Any]:
    """All of a report, as values of JSON."""
    return {
        "title": printable(report.title),
        "lines": [printable(line) for line in report.lines],
        "facts": [_fact(fact) for fact in report.facts],
        "bars": [_bar(bar) for bar in report.bars],
        "charts": [_chart(chart) for chart in report.charts],
        "maps": [_map(heat_map) for heat_map in report.heat_maps],
        "tables": [_table(table) for table in report.tables if table.rows],
        "found": counts_in_words(report.findings),
        "findings": [finding.document() for finding in shown(report.findings)],
        "notes": [printable(note) for note in report.notes],
    }


def _fact(fact: Fact) -> dict[str, object]:
    return {
        "key": fact.key,
        "title": printable(fact.title),
        "text": cell(fact.value, fact.unit),
        "note": printable(fact.note),
        "detail": fact.detail,
        "tone": fact.tone,
    }


def _bar(bar: Bar) -> dict[str, object]:
    left = bar.limit - sum(nbytes for _, nbytes in bar.parts)
    return {
        "parts": [
            {"name": printable(name), "bytes": nbytes, "text": format_bytes(nbytes)}
            for name, nbytes in bar.parts
        ],
        "limit": bar.limit,
        "limit_text": f"{format_bytes(bar.limit)}{printable(bar.note)}",
        "left": f"{format_bytes(left)} free" if left >= 0 else f"{format_bytes(-left)} too much",
    }


def _chart(chart: Chart) -> dict[str, object]:
    return {
        **chart._asdict(),
        "title": printable(chart.title),
        "series": [(printable(series.name), series.values) for series in chart.series],
        "limits": [(printable(name), value) for name, value in chart.limits],
    }


def _map(heat_map: HeatMap) -> dict[str, object]:
    rows = zip(heat_map.rows, heat_map.cells, strict=True)
    return {
        "title": printable(heat_map.title),
        "row_title": printable(heat_map.row_title),
        "rows": [(printable(name), [printable(one.text) for one in cells]) for name, cells in rows],
    }


def _table(table: Table) -> dict[str, object]:
    return {
        "key": table.key,
        "title": printable(table.title),
        "columns": [
            {"title": printable(column.title), "right": right, "verdict": column.unit == "verdict"}
            for column, right in zip(table.columns, table.numeric, strict=True)
        ],
        "rows": [_row(row, table.columns) for row in table.rows],
    }


def _row(row: tuple[object, ...], columns: tuple[Column, ...]) -> list[str]:
    return [cell(value, column.unit) for value, column in zip(row, columns, strict=True)]
