"""A report as a piece of html that a notebook shows: no page, and no style of its own, so that it
looks as the notebook does. All that a model says of itself is escaped."""

from collections.abc import Iterable, Iterator
from html import escape

from headcount.model.text import printable
from headcount.report.cells import cell
from headcount.report.lines import finding_line
from headcount.report.report import Fact, HeatMap, Report, Table, shown

_DARKEST = 0.6  # opacity of a cell's shade
_SHADE = "31, 111, 235"  # red, green, blue


def fragment(report: Report) -> str:
    """The whole report but for its charts."""
    return "\n".join(("<div>", *_parts(report), "</div>"))


def _text(value: str) -> str:
    return escape(printable(value))


def _parts(report: Report) -> Iterator[str]:
    yield f"<p><strong>{_text(report.title)}</strong></p>"
    if report.lines:
        yield f"<pre>{chr(10).join(map(_text, report.lines))}</pre>"
    if report.facts:
        yield from ("<table><tbody>", *map(_fact, report.facts), "</tbody></table>")
    for heat_map in report.heat_maps:
        yield from _heat_map(heat_map)
    for table in report.tables:
        yield from _table(table)
    yield from _list("Findings", map(finding_line, shown(report.findings)))
    yield from _list("Notes", report.notes)


def _fact(fact: Fact) -> str:
    note = f" ({_text(fact.note)})" if fact.note else ""
    value = escape(cell(fact.value, fact.unit))
    return f"<tr><th>{_text(fact.title)}</th><td>{value}{note}</td></tr>"


def _table(table: Table) -> Iterator[str]:
    yield f"<p>{_text(table.title)}</p>"
    heads = "".join(f"<th>{_text(column.title)}</th>" for column in table.columns)
    yield f"<table><thead><tr>{heads}</tr></thead><tbody>"
    for row in table.rows:
        cells = zip(row, table.columns, strict=True)
        texts = (f"<td>{escape(cell(value, column.unit))}</td>" for value, column in cells)
        yield f"<tr>{''.join(texts)}</tr>"
    yield "</tbody></table>"


def _heat_map(heat_map: HeatMap) -> Iterator[str]:
    yield f"<p>{_text(heat_map.title)}</p>"
    yield "<table><tbody>"
    for name, row in zip(heat_map.rows, heat_map.cells, strict=True):
        cells = "".join(f"<td{_shade(one.share)}>{_text(one.text)}</td>" for one in row)
        yield f"<tr><th>{_text(name)}</th>{cells}</tr>"
    yield "</tbody></table>"
    yield from _list("", (f"{text}: {meaning}" for text, meaning, _ in heat_map.legend))


def _shade(share: float) -> str:
    if share <= 0:
        return ""
    return f' style="background: rgba({_SHADE}, {_DARKEST * min(1.0, share):.3f})"'


def _list(title: str, lines: Iterable[str]) -> Iterator[str]:
    listed = [f"<li>{_text(line)}</li>" for line in lines]
    if listed:
        yield from (f"<p>{title}</p>" if title else "", "<ul>", *listed, "</ul>")
