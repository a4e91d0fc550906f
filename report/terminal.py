"""Reports in a terminal: the answer first and last, and between them what fits on its screen."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

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
_FEWEST_ROWS = 2  # of a table that is shortened, whatever it should keep
_MORE = "…"  # in the place of a text that --details shows
_NEVER_LEFT_OUT = ("Warning: ", "To start: ")  # how notes begin


def terminal(reports: Sequence[Report], view: View) -> str:
    """All reports, one after the other, and their answers at the end; without details the summary
    of all, where one is."""
    summary = next((report for report in reports if report.is_summary), None)
    if summary is not None and not view.details:
        reports = (summary,)
    together = summary is None and len(reports) > 1
    each = view._replace(tells=False) if together else view
    parts = ["\n".join(_shortened(report, each)) for report in reports]
    if together:
        parts.append("\n".join(line for report in reports for line in _last_lines(report, view)))
    if summary is not None and summary is not reports[-1]:
        parts.append("\n".join(_end(summary, view)).lstrip("\n"))
    return "\n\n".join(parts)


def answers(reports: Sequence[Report]) -> list[str]:
    """The answers alone, as a terminal has them last; of several that have a summary, its own."""
    summaries = [report for report in reports if report.is_summary]
    return [line for report in summaries or reports for line, _ in _told(report)]


def _shortened(report: Report, view: View) -> list[str]:
    """The report; without details it loses, to a screen's end, rows of tables that are not shown
    whole, and a brief one on a terminal what else takes lines, in the order of `_WAYS`. What went
    for a table that then had no room itself comes back."""
    whole, lines = report, list(_lines(report, view))
    while not view.details and len(lines) > _SCREEN:
        ways = _WAYS if report.is_brief and view.width is not None else _WAYS[:1]
        way = next((way for way in ways if way(report, view)), None)
        shorter = way and way(whole if way is _no_table else report, view)
        if shorter is None:
            break
        report, lines = shorter, list(_lines(shorter, view))
    return lines


def _a_row_less(report: Report, view: View) -> Report | None:
    """Of the tables with most, which keep what they should."""
    return _without_a_row(report, {table.key: table.least for table in report.tables})


def _a_row_less_than_it_should(report: Report, view: View) -> Report | None:
    return _without_a_row(report, dict.fromkeys((table.key for table in report.tables), 0))


def _without_a_row(report: Report, least: Mapping[str, int]) -> Report | None:
    shown = {t.key: min(t.brief, len(t.rows)) for t in report.tables if t.brief}
    longer = {n for key, n in shown.items() if n > max(least[key], _FEWEST_ROWS)}
    if not longer:
        return None
    rows = max(longer) - 1
    tables = (
        t._replace(brief=max(min(shown[t.key], rows), min(shown[t.key], least[t.key])))
        if t.brief
        else t
        for t in report.tables
    )
    return report._replace(tables=tuple(tables))


def _a_fact_less(report: Report, view: View) -> Report | None:
    """Of the facts with the highest `drop` the longest note that breaks its line, then the first
    fact itself, if it may go."""
    shown = [fact for fact in report.facts if not fact.detail]
    dropped = max(shown, key=_drop, default=None)
    if dropped is None:
        return None
    alike = [fact for fact in shown if fact.drop == dropped.drop]
    room = (view.width or 0) - max(columns(fact.title) for fact in shown) - 4
    noted = [fact for fact in alike if fact.note not in ("", _MORE) and _may_be_cut(fact, report)]
    longest = max(noted, key=lambda fact: columns(fact_line(fact)), default=None)
    if longest is not None and columns(fact_line(longest)) > room:
        return _with_fact(report, longest, longest._replace(note=_cut(longest.note)))
    if not dropped.drop:
        return None
    return _with_fact(report, dropped, dropped._replace(detail=True, note=_MORE))


def _cut(note: str) -> str:
    """Without the last of what it says."""
    first = note.removesuffix(f"; {_MORE}").rpartition("; ")[0]
    return f"{first}; {_MORE}" if first else _MORE


def _may_be_cut(fact: Fact, report: Report) -> bool:
    """Not that of a verdict alone, which says of what it is."""
    return fact.key != "verdict" or len(_answers(report)) > 1


def _drop(fact: Fact) -> int:
    return fact.drop


def _with_fact(report: Report, old: Fact, new: Fact) -> Report:
    return report._replace(facts=tuple(new if fact is old else fact for fact in report.facts))


def _a_long_note_less(report: Report, view: View) -> Report | None:
    """The longest note keeps its first line, and then the last finding of several lines its own."""
    room = (view.width or 0) - 4
    longest = max(_notes(report, view), key=len, default="")
    if columns(longest) > room:
        first = next(iter(broken(longest, room - 2))) + " …"
        notes = (first if note == longest else note for note in report.notes)
        return report._replace(notes=tuple(notes))
    told = [one for one in _findings(report, view) if columns(finding_line(one)) > room]
    if not told:
        return None
    bare = told[-1]._replace(message="", hint=_MORE)
    first = next(iter(broken(told[-1].message, max(room - columns(finding_line(bare)), 1))))
    short = bare._replace(message=first)
    findings = (short if found is told[-1] else found for found in report.findings)
    return report._replace(findings=tuple(findings))


def _no_table_named(report: Report, view: View) -> Report | None:
    """Of those that are not shown at all: how many there are is said."""
    if not any(table.brief == 0 and table.title for table in report.tables):
        return None
    tables = (table._replace(title="") if table.brief == 0 else table for table in report.tables)
    return report._replace(tables=tuple(tables))


def _no_table(report: Report, view: View) -> Report | None:
    """Of those that are not shown whole."""
    if not any(table.brief for table in report.tables):
        return None
    tables = (table._replace(brief=0) if table.brief else table for table in report.tables)
    return report._replace(tables=tuple(tables))


_WAYS = (
    *(_a_row_less, _a_fact_less, _a_long_note_less, _no_table_named),
    *(_a_row_less_than_it_should, _no_table),
)

# What stands in front of a line that names what it says: a word or two, and room.
_NAMED = re.compile(r" *[^ ]{1,12}( [^ ]{1,12})? {2,}(?=[^ ])")


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
    """A line that is too long is broken below where it began, behind its name, if it has one."""
    named = _NAMED.match(line)
    yield from broken(line, width, len(named[0]) if named else len(line) - len(line.lstrip()))


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
    found = report.findings
    codes = ", ".join(sorted({one.code for one in found if one.severity == "note"}))
    return [Fact("verdict", "Findings", counts_in_words(found), note=codes, tone=worst_tone(found))]


def _end(report: Report, view: View) -> Iterator[str]:
    """What was left out, and the answer once more."""
    left = ", ".join(_left_out(report, view))
    told = list(_last_lines(report, view)) if view.tells else []
    if left or told:
        yield ""
    if left:
        yield from broken(f"--details also shows: {left}.", view.width, 2)
    if told:
        yield from ("", *told) if left and not _answers(report) else told


def _last_lines(report: Report, view: View) -> Iterator[str]:
    for line, tone in _told(report):
        for part in broken(line, view.width, 2):
            yield _colored(part, tone, view)


def _told(report: Report) -> Iterator[tuple[str, str]]:
    """Its answers as lines, and the tone of each."""
    answers = _answers(report)
    if report.title_is_answer and not answers:
        yield printable(report.title), "title"
    for answer in answers:
        yield f"{printable(answer.title)}: {printable(str(answer.value))}", answer.tone


def _left_out(report: Report, view: View) -> Iterator[str]:
    hidden = [table for table in report.tables if _rows(table, view) == 0]
    for table in hidden:
        title = re.split(r", |:", printable(table.title))[0]
        if title:
            is_word = title[1:2].islower()  # as K/V is not
            yield title[:1].lower() + title[1:] if is_word else title
    if unnamed := sum(not table.title for table in hidden):
        yield f"{unnamed:,} {'table' if unnamed == 1 else 'tables'}"
    if report.is_summary and not view.details:
        yield "each model by itself"
    if facts := sum(fact.detail and fact.note == _MORE for fact in report.facts):
        yield f"{facts:,} {'figure' if facts == 1 else 'figures'}"
    notes = len(report.notes) - len(_notes(report, view))
    if notes:
        yield f"{notes:,} {'note' if notes == 1 else 'notes'}"
    left = len(report.findings) - sum(found.places for found in _findings(report, view))
    if left:
        yield f"{left:,} {'finding that is a note' if left == 1 else 'findings that are notes'}"


def _colored(line: str, tone: str, view: View) -> str:
    code = _COLORS.get(tone)
    return f"\x1b[{code}m{line}\x1b[0m" if view.color and code else line
