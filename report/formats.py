"""The formats: table for a terminal, markdown and html for people, csv and json for programs."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence

from headcount.model.text import is_hidden, printable

from .lines import fact_line, finding_line, grid, heat_map_lines
from .report import Report, shown

# What begins a formula in a spreadsheet, also in the wide forms of East Asian text.
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def render(reports: Sequence[Report], form: str) -> str:
    """All reports in one of FORMATS, ending in a newline."""
    return FORMATS[form](reports).rstrip("\n") + "\n"


def _text(reports: Sequence[Report]) -> str:
    return "\n\n".join("\n".join(_lines(report)) for report in reports)


def _lines(report: Report) -> Iterator[str]:
    yield printable(report.title)
    if report.lines:
        yield ""
    yield from (printable(line) for line in report.lines)
    if report.facts:
        yield ""
        titles = [printable(fact.title) for fact in report.facts]
        width = max(len(title) for title in titles)
        for title, fact in zip(titles, report.facts, strict=True):
            yield f"  {title:<{width}}  {printable(fact_line(fact))}"
    for heat_map in report.heat_maps:
        if heat_map.in_text:
            yield from ("", printable(heat_map.title), *heat_map_lines(heat_map, printable))
    for table in report.tables:
        yield ""
        if len(report.tables) > 1:
            yield printable(table.title)
        yield grid(table, "simple", printable)
    yield from _block("Notes", report.notes)
    yield from _block("Findings", map(finding_line, shown(report.findings)))


def _block(title: str, lines: Iterable[str]) -> Iterator[str]:
    listed = [f"  - {printable(line)}" for line in lines]
    if listed:
        yield from ("", title, *listed)


def _markdown(reports: Sequence[Report]) -> str:
    from .markdown import page

    return page(reports)


def _csv(reports: Sequence[Report]) -> str:
    """The records of each report, raw values, behind a column that names the report."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    header: list[str] = []
    for report in reports:
        for table in (report.records,) if report.records else report.tables[:1]:
            names = ["report", *(column.key for column in table.columns)]
            if names != header:
                writer.writerow(names)
                header = names
            writer.writerows(_raw((report.title, *row)) for row in table.rows)
    return out.getvalue()


def _raw(row: Iterable[object]) -> list[object]:
    return [_inert(printable(value)) if isinstance(value, str) else value for value in row]


def _inert(text: str) -> str:
    """A text that a spreadsheet would take for a formula, behind the quote that makes it none."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def _json(reports: Sequence[Report]) -> str:
    """Printed in a terminal as well: what is invisible there is written by JSON's own escapes, and
    so is half of a surrogate pair, as in a file name that is not UTF-8."""
    documents = [r.document if r.items is None else list(r.items) for r in reports]
    value = documents[0] if len(documents) == 1 else documents
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    hidden = [char for char in set(text) if char != "\n" and is_hidden(char)]
    return text.translate({ord(char): json.dumps(char)[1:-1] for char in hidden})


def _html(reports: Sequence[Report]) -> str:
    from .html import page

    return page(reports)


# What people read; the others are for programs.
FOR_PEOPLE = ("table", "markdown", "html")
FORMATS: dict[str, Callable[[Sequence[Report]], str]] = {
    "table": _text,
    "markdown": _markdown,
    "json": _json,
    "csv": _csv,
    "html": _html,
}
# What the name of a file says of its format.
ENDINGS = {
    **{".md": "markdown", ".markdown": "markdown"},
    **{".json": "json", ".csv": "csv", ".html": "html", ".htm": "html"},
}
