"""Several models in one view: what each of them takes, in one table, and in one JSON document."""

from collections.abc import Iterator, Sequence
from itertools import accumulate, zip_longest

from headcount.report.cells import cell
from headcount.report.report import Column, Fact, Report, Table

from ..hardware.candidates import Candidate, telling
from ..hardware.cost import HOURS_A_MONTH
from ..result import PlanResult
from .document import hardware_document
from .facts import engine_name
from .hardware import NAMING, hardware_columns, hardware_rows, without_empty_end
from .notes import of_cards, refused, warnings

SCHEMA_VERSION = 1
_MOST_ROWS = 6  # of a model, where the devices were not named
_BRIEF_ROWS = 3  # of each, in a terminal


def overview_report(
    names: Sequence[str], results: Sequence[PlanResult | None], reports: Sequence[Report]
) -> Report:
    """A line and rows for each model, by the name it was asked for where it could not be planned.
    The document holds those of all `reports`."""
    found = [result for result in results if result is not None]
    prices = any(result.prices for result in found)
    shown = [_shown(result) for result in found]
    rows = [
        [(result.plan.model.model_id, *row) for row in hardware_rows(result, own)]
        for result, own in zip(found, shown, strict=True)
    ]
    records = Table(
        key="hardware",
        title="Hardware, the best first",
        columns=(Column("model", "Model"), *hardware_columns(prices)),
        rows=tuple(row for own in rows for row in own),
    )
    are_named = all(result.named for result in found)
    table = records._replace(
        rows=_briefly_named(records.rows),
        brief=len(records.rows) if are_named else _BRIEF_ROWS * len(found),
        least=len(found),
        telling=tuple(_in_turn(shown, prices)),
        asked_for="" if are_named else NAMING,
    )
    return Report(
        title=f"Plan of {len(names)} models{_wanted(found)}",
        facts=tuple(_facts(names, results, reports)),
        tables=(without_empty_end(table),),
        records=records,
        notes=tuple(_notes(found)),
        document=_document(results, reports),
        is_brief=True,
        is_summary=True,
    )


def _briefly_named(rows: Sequence[tuple[object, ...]]) -> tuple[tuple[object, ...], ...]:
    """The models without their organisations, where those do not tell them apart."""
    names = {str(row[0]): str(row[0]).rpartition("/")[2] for row in rows}
    if len(set(names.values())) < len(names):
        return tuple(rows)
    return tuple((names[str(row[0])], *row[1:]) for row in rows)


def _in_turn(shown: Sequence[Sequence[Candidate]], by_price: bool) -> Iterator[int]:
    """The places of the most telling row of each model, then of the next of each: a screen that
    ends has rows of all. The best by price tell most."""
    starts = [0, *accumulate(map(len, shown))]
    for places in zip_longest(*(range(len(own)) if by_price else telling(own) for own in shown)):
        yield from (start + at for start, at in zip(starts, places, strict=False) if at is not None)


def _shown(result: PlanResult) -> tuple[Candidate, ...]:
    if not result.ranking:
        return (result.shown,) if result.shown else ()
    return result.of_each_device if result.named else result.of_each_device[:_MOST_ROWS]


def _wanted(found: Sequence[PlanResult]) -> str:
    users = next((result.users for result in found if result.users), None)
    contexts = {result.plan.workload.context for result in found}
    length = f" of {contexts.pop():,} tokens" if len(contexts) == 1 else ""
    wanted = f" for {users:,} requests{length} at once" if users else ""
    engines = {engine_name(result.plan) for result in found if result.plan.engine.starts}
    return f"{wanted}, {engines.pop()}" if len(engines) == 1 else wanted


def _facts(
    names: Sequence[str], results: Sequence[PlanResult | None], reports: Sequence[Report]
) -> Iterator[Fact]:
    """The verdict of each model, under its name."""
    for name, result, report in zip(names, results, reports, strict=True):
        if result is None:
            yield Fact("error", name, report.notes[0])
            continue
        verdict, chosen = report.facts[0], result.chosen
        note = verdict.note if chosen is None else _split(result, chosen)
        yield verdict._replace(title=result.plan.model.model_id, note=note)


def _split(result: PlanResult, chosen: Candidate) -> str:
    return f"{_priced(result, chosen, chosen.split)}{_perhaps(result)}"


def _priced(result: PlanResult, option: Candidate, what: str) -> str:
    price = result.an_hour(option)
    return what if price is None else f"{what}, {cell(price, 'price')} an hour"


def _perhaps(result: PlanResult) -> str:
    option = result.perhaps
    if option is None:
        return ""
    what = f"{option.devices:,} x {option.device.key}, {option.split}"
    return f"; borderline {_priced(result, option, what)}"


def _notes(found: Sequence[PlanResult]) -> Iterator[str]:
    """Each model's warnings first."""
    for result in found:
        for text in warnings(result.plan):
            yield f"Warning: {result.plan.model.model_id}: {text}"
        for text in refused(_shown(result)):
            yield f"{result.plan.model.model_id}: {text}"
    hidden = [result for result in found if len(_shown(result)) < len(result.of_each_device)]
    if hidden:
        yield f"Shown are the {_MOST_ROWS} best of each model: --device NAME,NAME names others."
    yield from of_cards(dict.fromkeys(option.device for n in found for option in _shown(n)))
    if any(option.replicas > 1 for result in found for option in _shown(result)):
        yield (
            "Each replica is an engine of its own with its own copy of the weights; users are"
            " spread evenly over them."
        )
    if any(option.verdict == "borderline" for result in found for option in _shown(result)):
        yield "Borderline is what the estimates' error decides: start it to know."
    if any(result.prices for result in found):
        yield f"Prices are those given, of {HOURS_A_MONTH} hours a month."


def _document(results: Sequence[PlanResult | None], reports: Sequence[Report]) -> dict[str, object]:
    """`plans` has the document of each model, as of a call with it alone, or its error."""
    hardware = [
        {"model": result.plan.model.model_id, **hardware_document(option, result)}
        for result in results
        if result is not None
        for option in _shown(result)
    ]
    return {
        "schema_version": SCHEMA_VERSION,
        "hardware": hardware,
        "plans": [report.document for report in reports],
    }
