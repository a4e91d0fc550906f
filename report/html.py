"""Reports as one html page that needs nothing else: no network, light and dark; script only where
a report has charts and the extra `charts` is installed.

All that a model says of itself goes through `_text`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape

from headcount.model.text import printable

from .cells import cell
from .charts import drawing_of, figures_of
from .report import Column, Fact, Finding, HeatCell, HeatMap, Report, Table, shown

# No more than the page's own style may be loaded, should a name ever get out of its quotes, and no
# script run but those whose hashes are added.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --soft: #59636e; --line: #d1d9e0;
  --page: #ffffff; --band: #f6f8fa; --heat: 31 111 235;
  --error: #b3261e; --warning: #8a5a00; --note: #0b57a4; --good: #1a6b35;
  --hue-0: 213 94 0; --hue-1: 204 121 167; --hue-2: 0 114 178; --hue-3: 0 158 115;
  --hue-4: 120 120 120; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9198a1; --line: #3d444d;
  --page: #0d1117; --band: #151b23; --heat: 56 139 253;
  --error: #ff8a80; --warning: #e3b341; --note: #79b8ff; --good: #6fdd8b; } }
* { box-sizing: border-box; }
body { margin: 0; padding: 1.5rem; background: var(--page); color: var(--ink);
  font: 0.9375rem/1.5 system-ui, sans-serif; }
main { max-width: 75rem; margin: 0 auto; }
section + section { margin-top: 3rem; border-top: 1px solid var(--line); }
h1 { font-size: 1.375rem; line-height: 1.3; overflow-wrap: anywhere; }
h2 { font-size: 1.0625rem; margin: 2rem 0 0.5rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.125rem 1.25rem; margin: 0; }
dt, small { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
small { font-size: 0.875rem; }
nav { font-size: 0.875rem; margin-bottom: 1rem; }
nav ul { display: flex; flex-wrap: wrap; gap: 0.25rem 1.25rem; list-style: none; margin: 0;
  padding: 0; }
a { color: var(--note); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.875rem; }
th, td { padding: 0.25rem 0.625rem; border-bottom: 1px solid var(--line); text-align: left; }
th { background: var(--band); font-weight: 600; white-space: nowrap; }
th:first-child, td:first-child { position: sticky; left: 0; }
td:first-child { background: var(--page); }
.number { text-align: right; white-space: nowrap; }
.heat { background: rgb(var(--heat) / var(--share)); }
.map { border-collapse: separate; border-spacing: 2px; }
.map th { background: none; font-weight: 400; color: var(--soft); }
.map th:first-child { background: var(--page); }
.map th, .map td { border: 0; padding: 0.125rem; min-width: 1.875rem; text-align: center; }
.map td { background: var(--band); }
.map tbody th { text-align: right; padding-right: 0.5rem; }
.map .shade, .legend .shade { background: rgb(var(--hue) / var(--share)); }
.row { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 34rem), 1fr));
  column-gap: 2rem; }
.row > div { min-width: 0; }
.legend { display: flex; flex-wrap: wrap; gap: 0.25rem 1.25rem; list-style: none; padding: 0;
  font-size: 0.875rem; }
.legend span { display: inline-block; min-width: 1.5rem; text-align: center; }
pre { overflow-x: auto; padding: 0.75rem; background: var(--band); }
li { margin: 0.25rem 0; overflow-wrap: anywhere; }
.chart { width: 100%; height: 26rem; }
.error { color: var(--error); } .warning { color: var(--warning); } .note { color: var(--note); }
.good { color: var(--good); } td.good, td.warning, td.error { white-space: nowrap; }
@media (max-width: 40rem) { body { padding: 1rem; } dl { grid-template-columns: 1fr; }
  dd { margin-bottom: 0.5rem; } }
"""
_DARKEST = 0.6  # opacity of a cell's shade, which its number must stay readable on

_HALF_A_PAGE = 16  # cells of a map


def page(reports: Sequence[Report]) -> str:
    """All reports, one section each."""
    title = reports[0].title if len(reports) == 1 else f"{len(reports)} reports"
    drawing = drawing_of([chart for report in reports for chart in report.charts])
    return "\n".join(
        (
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}{drawing.policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{_text(title)}</title>",
            f"<style>{_STYLE}</style>",
            "</head>",
            "<body>",
            "<main>",
            *_contents(reports),
            *(line for n, report in enumerate(reports) for line in _section(report, n)),
            "</main>",
            *drawing.scripts,
            "</body>",
            "</html>",
        )
    )


def _text(value: str) -> str:
    return escape(printable(value))


def _contents(reports: Sequence[Report]) -> Iterator[str]:
    """Links to the sections of a page that has several."""
    if len(reports) > 1:
        yield '<nav aria-label="Reports"><ul>'
        for n, report in enumerate(reports):
            yield f'<li><a href="#report-{n}">{_text(report.title)}</a></li>'
        yield "</ul></nav>"


def _section(report: Report, number: int) -> Iterator[str]:
    name = f"report-{number}"
    yield f'<section id="{name}">\n<h1>{_text(report.title)}</h1>'
    if report.lines:
        yield f"<pre>{chr(10).join(_text(line) for line in report.lines)}</pre>"
    if report.facts:
        yield from ("<dl>", *(_fact(fact) for fact in report.facts), "</dl>")
    if report.charts:
        yield from figures_of(report.charts, name)
    for row in _side_by_side(report.heat_maps):
        yield from _heat_maps(row)
    for table in report.tables:
        yield f"<h2>{_text(table.title)}</h2>"
        yield from _table(table)
    yield from _list("Findings", map(_finding, shown(report.findings)))
    yield from _list("Notes", (f"<li>{_text(note)}</li>" for note in report.notes))
    yield "</section>"


def _fact(fact: Fact) -> str:
    note = f" <small>({_text(fact.note)})</small>" if fact.note else ""
    value = escape(cell(fact.value, fact.unit))
    if fact.unit == "command":
        value = f"<code>{value}</code>"
    return f"<dt>{_text(fact.title)}</dt><dd>{value}{note}</dd>"


def _list(title: str, items: Iterable[str]) -> Iterator[str]:
    listed = list(items)
    if listed:
        yield from (f"<h2>{title}</h2>", "<ul>", *listed, "</ul>")


def _finding(finding: Finding) -> str:
    return (
        f'<li><strong class="{_text(finding.severity)}">{_text(finding.code)}'
        f" {_text(finding.severity)}</strong> {_text(finding.where)}: {_text(finding.message)};"
        f" {_text(finding.hint)}</li>"
    )


def _table(table: Table) -> Iterator[str]:
    """A table that scrolls sideways on a narrow screen, by itself and not with the page."""
    numeric = table.numeric
    yield f'<div class="scroll" tabindex="0" role="region" aria-label="{_text(table.title)}">'
    yield "<table>\n<thead><tr>"
    for column, right in zip(table.columns, numeric, strict=True):
        number = ' class="number"' if right else ""
        yield f'<th scope="col"{number}>{_text(column.title)}</th>'
    yield "</tr></thead>\n<tbody>"
    for row in table.rows:
        cells = zip(row, table.columns, numeric, strict=True)
        yield f"<tr>{''.join(_cell(value, column, right) for value, column, right in cells)}</tr>"
    yield "</tbody>\n</table>\n</div>"


def _side_by_side(heat_maps: Iterable[HeatMap]) -> list[list[HeatMap]]:
    """Those that stand in one row, if the screen has room: never maps too wide for half a page."""
    rows: list[list[HeatMap]] = []
    for heat_map in heat_maps:
        is_narrow = max(map(len, heat_map.cells), default=0) <= _HALF_A_PAGE
        if heat_map.beside and rows and is_narrow:
            rows[-1].append(heat_map)
        else:
            rows.append([heat_map])
    return rows


def _heat_maps(row: Sequence[HeatMap]) -> Iterator[str]:
    yield '<div class="row">'
    for heat_map in row:
        yield f"<div>\n<h2>{_text(heat_map.title)}</h2>"
        yield from _heat_map(heat_map)
        yield "</div>"
    yield "</div>"


def _heat_map(heat_map: HeatMap) -> Iterator[str]:
    yield f'<div class="scroll" tabindex="0" role="region" aria-label="{_text(heat_map.title)}">'
    yield '<table class="map">'
    numbers = range(max(map(len, heat_map.cells), default=0))
    head = "".join(f'<th scope="col">{number}</th>' for number in numbers)
    yield f'<thead><tr><th scope="col">{_text(heat_map.row_title)}</th>{head}</tr></thead>\n<tbody>'
    for name, row in zip(heat_map.rows, heat_map.cells, strict=True):
        cells = "".join(f"<td{_shade(cell)}>{_text(cell.text)}</td>" for cell in row)
        yield f'<tr><th scope="row">{_text(name)}</th>{cells}</tr>'
    yield "</tbody>\n</table>\n</div>"
    if heat_map.legend:
        entries = (
            f"<li><span{_shade(HeatCell(text, 1, hue))}>{_text(text)}</span> {_text(meaning)}</li>"
            for text, meaning, hue in heat_map.legend
        )
        yield from ('<ul class="legend">', *entries, "</ul>")


def _shade(cell: HeatCell) -> str:
    if cell.hue is None or cell.share <= 0:
        return ""
    share = _DARKEST * min(1.0, cell.share)
    return f' class="shade" style="--hue: var(--hue-{cell.hue}); --share: {share:.3f}"'


def _cell(value: object, column: Column, right: bool) -> str:
    text = escape(cell(value, column.unit))
    if column.unit == "verdict":
        return f'<td class="{_VERDICTS.get(str(value), "error")}">{text}</td>'
    shade = _SHADES.get(column.unit)
    if shade is None or not isinstance(value, int | float):
        return f'<td class="number">{text}</td>' if right else f"<td>{text}</td>"
    share = _DARKEST * min(1.0, max(0.0, shade(value)))
    return f'<td class="number heat" style="--share: {share:.3f}">{text}</td>'


# The others are errors.
_VERDICTS = {
    **{"fits": "good", "borderline": "warning"},
    **{"kept": "good", "lost in part": "warning", "only gained": "warning"},
}
# unit -> how dark a value is, from 0 to 1: the easier K/V heads are to merge, the darker.
_SHADES: dict[str, Callable[[float], float]] = {
    "similarity": lambda value: value,
    "loss_share": lambda value: 1 - value,
}
