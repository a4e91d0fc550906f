"""Reports in a terminal: the answer first and last, and between them what fits on its screen."""

import re
from collections.abc import Iterable, Iterator, Sequence

from headcount.model.text import printable
from headcount.model.units import format_bytes

from .lines import fact_line, finding_line, heat_map_lines
from .report import (
    Bar,
    Fact,
    Finding,
    HeatMap,
    Report,
    Table,
    counts_in_words,
    shown,
    worst_tone,
)
from .terminal_table import terminal_table
from .view import View, broken, columns

_COLORS = {"good": "32", "open": "33", "bad": "31", "title": "1"}
_BLOCKS, _LETTERS = "█▓▒░", "#=+:"  # of the parts of a bar, in their order
_WIDEST_BAR = 64
_SCREEN = 23  # lines, and one for the prompt
_FEWEST_ROWS = 2  # of a table that is shortened
_NEVER_LEFT_OUT = ("Warning: ", "To start: ")  # how notes begin


def terminal(reports: Sequence[Report], view: View) -> str:
    """All reports, one after the other; without details the summary of all, where one is."""
    summary = next((report for report in reports if report.is_summary), None)
    if summary is not None and not view.details:
        reports = (summary,)
    parts = ["\n".join(_shortened(report, view)) for report in reports]
    if summary is not None and summary is not reports[-1]:
        parts.append("\n".join(_end(summary, view)).lstrip("\n"))
    return "\n\n".join(parts)


def _shortened(report: Report, view: View) -> list[str]:
    """The report; without details, tables that are not shown whole lose rows to a screen's end."""
    lines = list(_lines(report, view))
    rows = max((min(t.brief, len(t.rows)) for t in report.tables if t.brief), default=0)
    while not view.details and len(lines) > _SCREEN and rows > _FEWEST_ROWS:
        rows -= 1
        tables = (t._replace(brief=min(t.brief, rows)) if t.brief else t for t in report.tables)
        lines = list(_lines(report._replace(tables=tuple(tables)), view))
    return lines


def _lines(report: Report, view: View) -> Iterator[str]:
    for line in broken(printable(report.title), view.width):
        yield _colored(line, "title", view)
    if report.lines:
        yield ""
    for line in report.lines:
        yield from _laid_out(printable(line), view.width)
    yield from _facts(report, view)
    for heat_map in report.heat_maps:
        if heat_map.in_text:
            yield from ("", printable(heat_map.title), *_heat_map(heat_map, view))
    for table in report.tables:
        if _rows(table, view) != 0:
            yield from _table(table, len(report.tables) > 1, view)
    yield from _block("Notes", _notes(report, view), view)
    yield from _block("Findings", map(finding_line, _findings(report, view)), view)
    yield from _end(report, view)


def _laid_out(line: str, width: int | None) -> Iterator[str]:
    """A line that is too long is broken below where it began."""
    yield from broken(line, width, len(line) - len(line.lstrip()))


def _facts(report: Report, view: View) -> Iterator[str]:
    facts = [
        *(answer for answer in _answers(report) if answer not in report.facts),
        *(fact for fact in report.facts if view.details or not fact.detail),
    ]
    titles = [printable(fact.title) for fact in facts]
    side = max(map(columns, titles), default=0)
    if facts:
        yield ""
    for title, fact in zip(titles, facts, strict=True):
        head = f"  {title}{' ' * (side - columns(title))}  "
        for line in broken(f"{head}{printable(fact_line(fact))}", view.width, columns(head)):
            yield _colored(line, fact.tone, view)
    for bar in report.bars:
        yield from ("", *_bar(bar, view))


def _bar(bar: Bar, view: View) -> Iterator[str]:
    """A part a character of its own, as wide as its share; what goes beyond the limit is told."""
    marks = _BLOCKS if view.blocks else _LETTERS
    used = sum(nbytes for _, nbytes in bar.parts)
    room = max(8, min((view.width or _WIDEST_BAR) - 20 - len(bar.note), _WIDEST_BAR))
    whole = max(used, bar.limit, 1)
    ends = [
        round(room * sum(n for _, n in bar.parts[: at + 1]) / whole) for at in range(len(bar.parts))
    ]
    line = "".join(
        mark * (end - start) for mark, start, end in zip(marks, (0, *ends), ends, strict=False)
    )
    yield f"  [{line:<{room}}] {format_bytes(bar.limit)}{bar.note}"
    names = [
        f"{mark} {printable(name)} {format_bytes(nbytes)}"
        for mark, (name, nbytes) in zip(marks, bar.parts, strict=False)
    ]
    left = bar.limit - used
    names.append(f"{format_bytes(left)} free" if left >= 0 else f"{format_bytes(-left)} too much")
    yield from broken(f"  {', '.join(names)}", view.width, 2)


def _heat_map(heat_map: HeatMap, view: View) -> Iterator[str]:
    for line in heat_map_lines(heat_map, printable, view.width):
        yield from _laid_out(line, view.width)


def _rows(table: Table, view: View) -> int | None:
    """How many rows of it are shown; None: all."""
    return None if view.details else table.brief


def _table(table: Table, is_one_of_several: bool, view: View) -> Iterator[str]:
    rows = _rows(table, view)
    yield ""
    if is_one_of_several:
        yield from broken(printable(table.title), view.width)
    yield from terminal_table(table, view.width, rows)


def _notes(report: Report, view: View) -> list[str]:
    if view.details or not report.is_brief:
        return list(report.notes)
    return [note for note in report.notes if note.startswith(_NEVER_LEFT_OUT)]


def _findings(report: Report, view: View) -> tuple[Finding, ...]:
    found = shown(report.findings)
    if view.details or not report.is_brief:
        return found
    return tuple(finding for finding in found if finding.severity != "note")


def _block(title: str, lines: Iterable[str], view: View) -> Iterator[str]:
    listed = [part for line in lines for part in broken(f"  - {printable(line)}", view.width, 4)]
    if listed:
        yield from ("", title, *listed)


def _answers(report: Report) -> list[Fact]:
    """The verdicts; of what was only looked through, how much was found."""
    verdicts = [fact for fact in report.facts if fact.key == "verdict"]
    if verdicts or not report.is_brief:
        return verdicts
    tone = worst_tone(report.findings)
    return [Fact("verdict", "Findings", counts_in_words(report.findings), tone=tone)]


def _end(report: Report, view: View) -> Iterator[str]:
    """What was left out, and the answer once more."""
    left, answers = ", ".join(_left_out(report, view)), _answers(report)
    if left or answers:
        yield ""
    if left:
        yield from broken(f"--details also shows: {left}.", view.width, 2)
    if report.title_is_answer and not answers:
        yield ""
        for part in broken(printable(report.title), view.width, 2):
            yield _colored(part, "title", view)
    for answer in answers:
        line = f"{printable(answer.title)}: {printable(str(answer.value))}"
        for part in broken(line, view.width, 2):
            yield _colored(part, answer.tone, view)


def _left_out(report: Report, view: View) -> Iterator[str]:
    for table in report.tables:
        if _rows(table, view) == 0:
            title = re.split(r"[,:]", printable(table.title))[0]
            yield title[:1].lower() + title[1:]
    if report.is_summary and not view.details:
        yield "each model by itself"
    notes = len(report.notes) - len(_notes(report, view))
    if notes:
        yield f"{notes:,} {'note' if notes == 1 else 'notes'}"
    hidden = len(report.findings) - sum(found.places for found in _findings(report, view))
    if hidden:
        yield f"{hidden:,} {'finding that is a note' if hidden == 1 else 'findings that are notes'}"


def _colored(line: str, tone: str, view: View) -> str:
    code = _COLORS.get(tone)
    return f"\x1b[{code}m{line}\x1b[0m" if view.color and code else line
