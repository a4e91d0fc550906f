"""Reports as markdown (CommonMark, with GitHub's tables). All that a model says of itself goes
through `plain`, so that it reads as it is and makes no markup."""

import re
from collections.abc import Iterator, Sequence

from headcount.model.text import printable

from .lines import fact_line, finding_line, grid, heat_map_lines
from .report import Fact, Report, shown

# What begins markup wherever it stands. A backslash does before punctuation, and before a bar of a
# table; an underscore inside of a word does not; $ is mathematics on GitHub.
_ANYWHERE = re.compile(r"\\(?=[!-/:-@\[-`{-~]|\Z)|[|<>`*\[\]&~$]|(?<![^\W_])_|_(?![^\W_])")
# What makes a heading (or ends one), a list or a rule of a line that begins with it: 1.5 does not,
# nor does -0.3.
_AT_THE_START = re.compile(r"^(\d{1,9})([.)])(?=\s|\Z)|^[-+](?!\d)|^=|(?<![^ ])#")
# Addresses that GitHub turns to links without being asked.
_ADDRESS = re.compile(r"(?=://)|(?<=www)(?=\.)", re.IGNORECASE)


def page(reports: Sequence[Report]) -> str:
    """All reports, one after the other."""
    return "\n\n".join("\n".join(_lines(report)) for report in reports)


def plain(text: str) -> str:
    """`text` as one line of markdown that shows it, with what is invisible as `printable` writes
    it: without links, html, emphasis, cells or blocks of its own."""
    shown = printable(text)
    inner = _ANYWHERE.sub(r"\\\g<0>", shown.strip())
    inner = _AT_THE_START.sub(lambda m: f"{m[1] or ''}\\{m[2] or m[0]}", inner)
    inner = _ADDRESS.sub(r"\\", inner)
    before = shown[: len(shown) - len(shown.lstrip())]
    after = shown[len(shown.rstrip()) :] if inner else ""
    return f"{_blanks(before)}{inner}{_blanks(after)}"


def _blanks(text: str) -> str:
    """Blanks that no parser strips."""
    return "".join(f"&#{ord(char)};" for char in text)


def _lines(report: Report) -> Iterator[str]:
    yield f"## {plain(report.title)}"
    yield ""
    if report.lines:
        yield from _fenced([printable(line) for line in report.lines])
    yield from (f"- **{plain(fact.title)}**: {_value(fact)}" for fact in report.facts)
    for heat_map in report.heat_maps:
        if heat_map.in_text:
            yield from ("", f"### {plain(heat_map.title)}", "")
            yield from _fenced([*heat_map_lines(heat_map, printable)])
    for table in report.tables:
        yield from ("", f"### {plain(table.title)}", "", grid(table, "github", plain))
    for title, lines in (
        ("Notes", list(report.notes)),
        ("Findings", [*map(finding_line, shown(report.findings))]),
    ):
        if lines:
            yield from ("", f"### {title}", "", *(f"- {plain(line)}" for line in lines))


def _value(fact: Fact) -> str:
    if fact.unit != "command":
        return plain(fact_line(fact))
    note = f" {plain(f'({fact.note})')}" if fact.note else ""
    return f"{_code(printable(str(fact.value)))}{note}"


def _code(text: str) -> str:
    """Code in a line, between more backticks than it holds in a row."""
    if not text.strip():
        return plain(text)  # no backticks can hold it
    longest = max(map(len, re.findall("`+", text)), default=0)
    ticks, pad = "`" * (longest + 1), " " if longest or " " in (text[0], text[-1]) else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def _fenced(lines: Sequence[str]) -> Iterator[str]:
    """A block in which nothing is markup, behind more backticks than any line has."""
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    yield from (fence, *lines, fence)
