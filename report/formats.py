"""The formats: table for a terminal, markdown and html for people, csv and json for programs."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence

from headcount.model.text import printable

from .cells import cell
from .report import Fact, Finding, Report, Table, shown


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
        width = max(len(fact.title) for fact in report.facts)
        yield from (f"  {fact.title:<{width}}  {_fact(fact)}" for fact in report.facts)
    for table in report.tables:
        yield ""
        if len(report.tables) > 1:
            yield table.title
        yield _grid(table, "simple")
    yield from _block("Notes", report.notes)
    yield from _block("Findings", map(_finding, shown(report.findings)))


def _block(title: str, lines: Iterable[str]) -> Iterator[str]:
    listed = [f"  - {printable(line)}" for line in lines]
    if listed:
        yield from ("", title, *listed)


def _fact(fact: Fact) -> str:
    value = cell(fact.value, fact.unit)
    return f"{value} ({printable(fact.note)})" if fact.note else value


def _finding(finding: Finding) -> str:
    return f"{finding.code} {finding.severity}: {finding.where}: {finding.message}; {finding.hint}"


def _grid(table: Table, style: str) -> str:
    from tabulate import tabulate

    return tabulate(
        [
            [cell(value, column.unit) for value, column in zip(row, table.columns, strict=True)]
            for row in table.rows
        ],
        headers=[column.title for column in table.columns],
        tablefmt=style,
        colalign=["right" if right else "left" for right in table.numeric] if table.rows else None,
        disable_numparse=True,
    )


def _markdown(reports: Sequence[Report]) -> str:
    return "\n\n".join("\n".join(_markdown_lines(report)) for report in reports)


def _markdown_lines(report: Report) -> Iterator[str]:
    yield f"## {_escape(report.title)}"
    yield ""
    if report.lines:
        yield from ("```", *(printable(line).replace("`", "'") for line in report.lines), "```")
    yield from (f"- **{fact.title}**: {_escape(_fact(fact))}" for fact in report.facts)
    for table in report.tables:
        yield from ("", f"### {table.title}", "", _grid(_escaped(table), "github"))
    for title, lines in (
        ("Notes", list(report.notes)),
        ("Findings", [*map(_finding, shown(report.findings))]),
    ):
        if lines:
            yield from ("", f"### {title}", "", *(f"- {_escape(line)}" for line in lines))


def _escape(text: str) -> str:
    """A model's own words must not become markup."""
    escaped = printable(text)
    for char in "|<>`":
        escaped = escaped.replace(char, f"\\{char}")
    return escaped


def _escaped(table: Table) -> Table:
    rows = tuple(tuple(_escape(v) if isinstance(v, str) else v for v in row) for row in table.rows)
    return Table(key=table.key, title=table.title, columns=table.columns, rows=rows)


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
    return [printable(value) if isinstance(value, str) else value for value in row]


def _json(reports: Sequence[Report]) -> str:
    documents = [r.document if r.items is None else list(r.items) for r in reports]
    value = documents[0] if len(documents) == 1 else documents
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    # Half of a surrogate pair, as in a file name that is not UTF-8, becomes JSON's own escape.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


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
