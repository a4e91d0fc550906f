"""Logged figures against predicted ones, and what starts died of, as reports."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headcount.model.units import format_bytes
from headcount.report.report import Column, Fact, Report, Table, Tone

from ..engines.start_log import Log
from .explanation import Explanation
from .figures import Figure
from .start import VERSIONS, Start

_GIB = 2**30
_LISTED = 8  # files that are named in a note
# Rows that a terminal shows without --details, if they fit on its screen.
_BRIEF_FIGURES, _BRIEF_LOGS = 8, 20
_DROP = {"low": 2, "high": 2}
_UNCHECKED = "available memory is the log's own: give --device to check it"


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What is made of a log: `start` is None where its model is not known, `explanation` where
    nothing failed; `error` says why nothing was made of it, `has_no_figures` that it is no log."""

    name: str
    log: Log | None = None
    start: Start | None = None
    figures: tuple[Figure, ...] = ()
    explanation: Explanation | None = None
    notes: tuple[str, ...] = ()
    error: str | None = None
    has_no_figures: bool = False

    @property
    def is_well(self) -> bool:
        """The start came up, and no figure disagrees."""
        failed = self.error is not None or self.explanation is not None
        return not failed and all(figure.agrees is not False for figure in self.figures)

    @property
    def is_as_predicted(self) -> bool:
        """Well, with a figure at least that could be held against a plan."""
        return self.is_well and any(figure.agrees for figure in self.figures)

    @property
    def is_unchecked(self) -> bool:
        """The counts follow from the memory that the log has, which nothing was held against."""
        has_device = self.start is not None and self.start.request.device is not None
        return not has_device and any(
            figure.figure == "available_kv_bytes" and figure.agrees is None
            for figure in self.figures
        )

    @property
    def verdict(self) -> str:
        """With what was not checked, where figures agree."""
        agrees = self.is_as_predicted and self.is_unchecked
        return f"{self.short_verdict}; {_UNCHECKED}" if agrees else self.short_verdict

    @property
    def tone(self) -> Tone:
        if not self.is_well:
            return "bad"
        return "good" if self.is_as_predicted and not self.is_unchecked else "open"

    @property
    def short_verdict(self) -> str:
        if self.error is not None:
            return "not read"
        if self.explanation is not None:
            return "did not start"
        agree = sum(bool(figure.agrees) for figure in self.figures)
        known = sum(figure.agrees is not None for figure in self.figures)
        if not known:
            return "nothing to hold its figures against"
        return f"{agree} of {known} figures agree"

    @property
    def engine(self) -> str:
        if self.start is not None:
            request = self.start.request
            return f"{request.engine} {request.version.text if request.version else ''}".strip()
        if self.log is None:
            return ""
        return f"{self.log.engine} {self.log.settings.get('version', '')}".strip()

    @property
    def model(self) -> str:
        if self.start is not None:
            return self.start.model.model_id
        names = (
            [str(self.log.settings["model"])] if self.log and "model" in self.log.settings else []
        )
        return next(iter([*names, *(self.log.names if self.log else [])]), "")

    def document(self) -> dict[str, object]:
        """What is known of it; among the figures, first, what a start died of."""
        found = self.explanation.rows(self.start) if self.explanation else ()
        return {
            "log": self.name,
            "engine": self.engine,
            "model": self.model,
            "verdict": self.verdict,
            "figures": [*found, *(figure.document() for figure in self.figures)],
            "explanation": self.explanation.document() if self.explanation else None,
            "error": self.error,
        }


def report_of(outcome: Outcome) -> Report:
    """One log."""
    start, found = outcome.start, outcome.explanation
    title = f"{outcome.name}: {outcome.model or 'a model that is not known'} on {outcome.engine}"
    if start is not None and not start.said & VERSIONS:
        title += " (of which the log names no version)"
    notes = [*(start.notes if start else ())]
    if found is not None and any(remedy.command for remedy in found.remedies):
        notes.append("commands have what bears on memory: the start's other options are to add")
    return Report(
        title=title,
        facts=tuple(_facts(outcome)),
        tables=tuple(_tables(outcome)),
        notes=tuple(notes),
        document={"schema_version": 1, **outcome.document()},
        records=_with_commands(found) if found is not None and found.remedies else None,
        is_brief=True,
    )


def _facts(outcome: Outcome) -> Iterator[Fact]:
    start, found = outcome.start, outcome.explanation
    if found is None:
        yield Fact("verdict", "Verdict", outcome.verdict, tone=outcome.tone)
    else:
        yield Fact("verdict", "Verdict", f"did not start: {found.cause}", tone="bad")
        yield from _facts_of_failure(found)
    for unknown in outcome.notes:
        yield Fact("unknown", "Not known", unknown)
    if start is not None:
        yield from _facts_of_start(start)


def _facts_of_start(start: Start) -> Iterator[Fact]:
    request = start.request
    if request.context is not None:
        yield Fact("context", "Context", request.context, "tokens", drop=2)
    yield Fact("tp", "tp", request.tp, "count", drop=4)
    if request.utilisation is not None:
        yield Fact("utilisation", "Utilisation", f"{request.utilisation:g}", drop=3)
    if request.pp > 1:
        yield Fact("pp", "pp", request.pp, "count", drop=4)
    name = request.device.name if request.device else "not known"
    if start.device_is_guessed:
        name += ", which its figures fit: the log names none"
    yield Fact("device", "Device", name)


def _facts_of_failure(found: Explanation) -> Iterator[Fact]:
    if found.needed_bytes is not None:
        words = {True: "as reckoned here", False: "reckoned here otherwise", None: ""}
        agreed = words[found.needed_agrees]
        yield Fact("needed_bytes", "Needed", _as_logged(found.needed_bytes), note=agreed)
    if found.available_bytes is not None:
        yield Fact("available_bytes", "There was", _as_logged(found.available_bytes))
    if found.too_large is not None:
        yield Fact("too_large", "Too large", found.too_large, drop=1)
    largest = found.largest_context or found.logged_context
    if largest is not None:
        said = found.logged_context
        note = f"the engine says {said:,}" if said and said != largest else ""
        yield Fact("largest_context", "Largest context", largest, "tokens", note)
    if found.remedies:
        first = found.remedies[0]
        yield Fact("smallest_change", "Smallest change", first.text)
        if first.command:
            yield Fact("command", "Command", first.command)
        if others := "; ".join(remedy.text for remedy in found.remedies[1:]):
            yield Fact("other_changes", "Or", others, drop=2)
    if found.advice:
        yield Fact("advice", "Advice", "; ".join(found.advice))


def _as_logged(nbytes: int) -> str:
    """In GiB of two digits, as engines log sizes and the cause has them, where that says enough."""
    return f"{nbytes / _GIB:,.2f} GiB" if abs(nbytes) >= _GIB // 10 else format_bytes(nbytes)


def _tables(outcome: Outcome) -> Iterator[Table]:
    found = outcome.explanation
    if found is not None and found.remedies:
        yield _table_of_remedies(found)
        yield _table_of_commands(found)
    if found is not None and found.shares:
        yield _table_of_shares(found)
    if outcome.figures:
        yield _table_of_figures(outcome.figures)


def _table_of_remedies(found: Explanation) -> Table:
    return Table(
        key="changes",
        title="Changes, each of which would do",
        columns=(
            Column("change", "Change"),
            Column("kv_tokens", "Tokens of cache", "count"),
            Column("concurrency", "Concurrency", "text"),
        ),
        rows=tuple(
            (remedy.text, remedy.kv_tokens, f"{remedy.concurrency:.2f}")
            for remedy in found.remedies
        ),
        brief=0,
    )


def _table_of_commands(found: Explanation) -> Table:
    return Table(
        key="commands",
        title="Commands of the changes",
        columns=(Column("change", "Change"), Column("command", "Command")),
        rows=tuple((remedy.text, remedy.command) for remedy in found.remedies),
        brief=0,
    )


def _with_commands(found: Explanation) -> Table:
    """Each change in a row, for programs."""
    table = _table_of_remedies(found)
    commands = (remedy.command for remedy in found.remedies)
    rows = ((*row, command) for row, command in zip(table.rows, commands, strict=True))
    columns = (*table.columns, Column("command", "Command"))
    return table._replace(columns=columns, rows=tuple(rows))


def _table_of_shares(found: Explanation) -> Table:
    return Table(
        key="shares",
        title="Memory of a rank",
        columns=(
            Column("term", "Term"),
            Column("bytes", "Bytes", "bytes"),
            Column("source", "Source"),
        ),
        rows=tuple((share.term, share.bytes, share.source) for share in found.shares),
        brief=0,
    )


def _table_of_figures(found: Sequence[Figure]) -> Table:
    names = ("logged", "predicted", "low", "high")
    return Table(
        key="figures",
        title="Logged and predicted",
        columns=(
            Column("figure", "Figure"),
            *(Column(name, name.capitalize(), drop=_DROP.get(name, 0)) for name in names),
            Column("agrees", "Agrees"),
            Column("why", "Why", drop=1),
        ),
        rows=tuple(
            (
                figure.figure,
                *(_value(figure.figure, getattr(figure, name)) for name in names),
                {True: "yes", False: "no", None: "not known"}[figure.agrees],
                figure.why,
            )
            for figure in found
        ),
        brief=_BRIEF_FIGURES,
    )


def _value(name: str, value: float | None) -> str:
    if value is None:
        return ""
    if name.endswith("_bytes"):
        return format_bytes(int(value))
    return f"{value:,.2f}x" if name == "concurrency" else f"{int(value):,}"


def overview(outcomes: Sequence[Outcome], others: Sequence[str] = ()) -> Report:
    """Several logs, a row each; the document has all that is known of each. `others` are files
    beside them that are none."""
    table = Table(
        key="logs",
        title="Logs",
        columns=(
            Column("log", "Log"),
            Column("engine", "Engine", drop=2),
            Column("model", "Model"),
            Column("verdict", "Verdict"),
            Column("largest_context", "Largest context", "count", drop=1),
            Column("what", "What"),
        ),
        rows=tuple(_row(outcome) for outcome in outcomes),
        brief=_BRIEF_LOGS,
    )
    well = sum(outcome.is_as_predicted for outcome in outcomes)
    notes = [f"No figures that engines log are in {_listed(others)}."] if others else []
    return Report(
        title=f"{len(outcomes)} logs",
        facts=(Fact("verdict", "Verdict", f"{well} of {len(outcomes)} started as predicted"),),
        tables=(table,),
        notes=tuple(notes),
        document={
            "schema_version": 1,
            "reconciliations": [outcome.document() for outcome in outcomes],
        },
    )


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {more} more" if more > 0 else "")


def _row(outcome: Outcome) -> tuple[object, ...]:
    found = outcome.explanation
    largest = (found.largest_context or found.logged_context) if found else None
    head = (outcome.name, outcome.engine, outcome.model, outcome.short_verdict, largest)
    return (*head, _what(outcome))


def _what(outcome: Outcome) -> str:
    if outcome.error is not None:
        return outcome.error
    if (found := outcome.explanation) is not None:
        change = f"; smallest change: {found.remedies[0].text}" if found.remedies else ""
        return f"{found.cause}{change}"
    wrong = next((f for f in outcome.figures if f.agrees is False), None)
    if wrong is None:
        return _UNCHECKED if outcome.is_as_predicted and outcome.is_unchecked else ""
    return f"{wrong.figure}: {wrong.why}"
