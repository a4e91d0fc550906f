"""The formats: table for a terminal, markdown and html for people, csv and json for programs."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Sequence

from headcount.model.text import is_hidden, printable

from .report import Report
from .view import View

# What begins a formula in a spreadsheet, also in the wide forms of East Asian text.
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def render(reports: Sequence[Report], form: str, view: View | None = None) -> str:
    """All reports in one of FORMATS, ending in a newline. `view` is how a terminal shows them."""
    text = _table(reports, view) if form == "table" else FORMATS[form](reports)
    return text.rstrip("\n") + "\n"


def _table(reports: Sequence[Report], view: View | None = None) -> str:
    from .terminal import terminal

    return terminal(reports, view or View())


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
    """The document that one of the reports has, or a list of theirs. Printed in a terminal as well:
    what is invisible there is written by JSON's own escapes, and so is half of a surrogate pair, as
    in a file name that is not UTF-8."""
    documents = [report.document for report in reports if report.document]
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
    "table": _table,
    "markdown": _markdown,
    "json": _json,
    "csv": _csv,
    "html": _html,
}
# What the name of a file says of its format.
ENDINGS = {
    **{".md": "markdown", ".markdown": "markdown"},
    **{".json": "json", ".csv": "csv", ".html": "html", ".htm": "html"},
    ".sarif": "sarif",  # of `audit` alone
}
