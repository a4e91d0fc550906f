"""What a command has to say: facts, tables, findings. Raw integers: units are the renderers'.

Named tuples, since every audit loads them and they take a third of a dataclass's time to define.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from headcount.model import limits

Severity = Literal["error", "warning", "note"]
Tone = Literal["", "good", "open", "bad"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")


class Finding(NamedTuple):
    """Something an auditor reports. `code` is stable: H101 stays H101. `places`: how many places it
    stands for, where it counts what is not listed."""

    code: str
    severity: Severity
    where: str
    message: str
    hint: str
    places: int = 1

    def document(self) -> dict[str, object]:
        return {
            "code": self.code,
            "severity": self.severity,
            "where": self.where,
            "message": self.message,
            "hint": self.hint,
        }


def counted(code: str, severity: Severity, places: int, hint: str) -> Finding:
    """The finding that stands for `places` more of a rule, which are not listed."""
    what = "place that is" if places == 1 else "places that are"
    return Finding(code, severity, "…", f"{places:,} more {what} not listed", hint, places)


def shown(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """`findings` as people are shown them: the first of each rule, then how many more there are."""
    of_a_rule: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        of_a_rule.setdefault((finding.severity, finding.code), []).append(finding)
    result: list[Finding] = []
    for alike in of_a_rule.values():
        first, others = alike[: limits.FINDINGS_SHOWN.most], alike[limits.FINDINGS_SHOWN.most :]
        result += first
        if others:
            code, severity, _, _, hint, _ = first[0]
            result.append(counted(code, severity, sum(one.places for one in others), hint))
    return tuple(result)


def counts_in_words(findings: Iterable[Finding]) -> str:
    """How many of each severity: "1 error, 2 warnings", or "none"."""
    counts = dict.fromkeys(SEVERITIES, 0)
    for finding in findings:
        counts[finding.severity] += finding.places
    found = [f"{n:,} {one}{'' if n == 1 else 's'}" for one, n in counts.items() if n]
    return ", ".join(found) or "none"


def worst_tone(findings: Iterable[Finding]) -> Tone:
    """bad with an error, open with a warning, else good."""
    worst = {finding.severity for finding in findings}
    return "bad" if "error" in worst else "open" if "warning" in worst else "good"


class Column(NamedTuple):
    """`unit` is text, count, bytes, exact_bytes, tokens, percent, ratio, parameters, seconds,
    rate, price, bits, bandwidth (bytes/s) or flops (FLOP/s); similarity, from -1 to 1, and
    loss_share, from 0 to 1, are shaded in html: the darker, the easier to merge; a verdict is
    coloured; a command is to be typed. share lies between 0 and 1 or -1 and 1, mean_tokens counts
    tokens and parts of them. Where a terminal is too narrow those with the highest `drop` are left
    out first, those with 0 never."""

    key: str
    title: str
    unit: str = "text"
    drop: int = 0


class Table(NamedTuple):
    """Rows of raw values, one per column; None prints as an empty cell. `brief` is how many rows a
    terminal shows without --details; None: all. Of those it keeps `least` as long as anything else
    can go. `telling` are the places of all rows, those that it shows before others first; they
    stand in the table's order then. `asked_for` says how to ask for some that are not shown."""

    key: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[object, ...], ...]
    brief: int | None = None
    least: int = 2
    telling: tuple[int, ...] = ()
    asked_for: str = ""

    def first(self, rows: int | None) -> tuple[tuple[object, ...], ...]:
        """So many of its rows, those that tell most; None: all."""
        if rows is None or rows >= len(self.rows):
            return self.rows
        telling = self.telling or range(len(self.rows))
        return tuple(self.rows[at] for at in sorted(telling[:rows]))

    @property
    def numeric(self) -> list[bool]:
        """For each column whether it holds no text, so that it is set to the right."""
        return [
            all(not isinstance(row[i], str) for row in self.rows) for i in range(len(self.columns))
        ]

    def documents(self) -> list[dict[str, object]]:
        """Each row as an object of JSON, by the keys of the columns."""
        keys = [column.key for column in self.columns]
        return [dict(zip(keys, row, strict=True)) for row in self.rows]


class Fact(NamedTuple):
    """One line of a report's head. `note` is said in brackets behind the value. The key "verdict"
    marks the answer, which a terminal shows again at the end; what is `detail` it shows with
    --details only. `tone`, which colours it there, is good, open or bad. Where it shows too few
    lines those with the highest `drop` are left out first, those with 0 never."""

    key: str
    title: str
    value: object
    unit: str = "text"
    note: str = ""
    detail: bool = False
    tone: Tone = ""
    drop: int = 0


class Bar(NamedTuple):
    """What shares an amount of memory: names and bytes. `limit` is what there is of it, and `note`
    of what."""

    parts: tuple[tuple[str, int], ...]
    limit: int
    note: str = ""


class Series(NamedTuple):
    """One line, area or group of bars of a chart; None: it has nothing at that place. `is_mark`:
    rings around points of others, in a chart of lines."""

    name: str
    values: tuple[float | None, ...]
    is_mark: bool = False


class Chart(NamedTuple):
    """`places` are the values of x that the series have one value at each. `kind` is area (the
    series stacked), line or bar; `limits` are named values of y, drawn across. Html shows charts,
    the other formats the tables that say the same."""

    key: str
    title: str
    kind: Literal["area", "line", "bar"]
    x_title: str
    y_title: str
    places: tuple[float, ...]
    series: tuple[Series, ...]
    limits: tuple[tuple[str, float], ...] = ()
    x_is_log: bool = False


class HeatCell(NamedTuple):
    """`text` of three characters at most; `share`, from 0 to 1, is how dark it is in html, and
    `hue` the number of its colour (0 to 4), None for none."""

    text: str
    share: float
    hue: int | None = None


class HeatMap(NamedTuple):
    """Rows of cells, numbered from 0. `legend`: texts, what they mean, and the hue of each. Html
    shows every map, the other formats for people those that are `in_text`. `beside`: it stands
    beside the one before it in html, where there is room."""

    key: str
    title: str
    row_title: str
    rows: tuple[str, ...]
    cells: tuple[tuple[HeatCell, ...], ...]
    legend: tuple[tuple[str, str, int | None], ...] = ()
    in_text: bool = False
    beside: bool = False


class Report(NamedTuple):
    """`document` is the JSON interface (none: that of another report has it); `records` the rows of
    CSV (None: those of the first table); the rest is what people read. `lines` are text that is
    laid out already. `is_brief`: without --details a terminal counts findings that are
    notes, and notes that are no warnings and that no start needs; and it says how much was found
    where no fact is a verdict. `is_summary`: without --details it stands for the reports beside
    it. `title_is_answer`: as a verdict it is shown again at the end."""

    title: str
    lines: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    document: Mapping[str, object] = MappingProxyType({})
    records: Table | None = None
    charts: tuple[Chart, ...] = ()
    heat_maps: tuple[HeatMap, ...] = ()
    bars: tuple[Bar, ...] = ()
    is_brief: bool = False
    is_summary: bool = False
    title_is_answer: bool = False


def in_one_document(first: Report, more: Mapping[str, Report]) -> tuple[Report, ...]:
    """All of them; the documents of `more` are keys of the first one's, by their names."""
    documents = {name: report.document for name, report in more.items()}
    others = (report._replace(document=MappingProxyType({})) for report in more.values())
    return first._replace(document={**first.document, **documents}), *others
