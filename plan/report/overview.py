"""Several models in one view: what each of them takes, in one table, and in one JSON document."""

from collections.abc import Iterator, Sequence

from headcount.report.cells import cell
from headcount.report.report import Column, Fact, Report, Table

from ..hardware.candidates import Candidate
from ..hardware.cost import HOURS_A_MONTH
from ..result import PlanResult
from .document import candidate_document
from .hardware import hardware_columns, hardware_rows
from .notes import of_cards, refused, warnings

SCHEMA_VERSION = 1
_MOST_ROWS = 6  # of a model, where the devices were not named


def overview_report(
    names: Sequence[str], results: Sequence[PlanResult | None], reports: Sequence[Report]
) -> Report:
    """A line and rows for each model, by the name it was asked for where it could not be planned.
    The document holds those of all `reports`."""
    found = [result for result in results if result is not None]
    prices = any(result.prices for result in found)
    rows = [
        (result.plan.model.model_id, *row)
        for result in found
        for row in hardware_rows(result, _shown(result))
    ]
    return Report(
        title=f"Plan of {len(names)} models{_wanted(found)}",
        facts=tuple(_facts(names, results, reports)),
        tables=(
            Table(
                key="hardware",
                title="Hardware, the best first",
                columns=(Column("model", "Model"), *hardware_columns(prices)),
                rows=tuple(rows),
            ),
        ),
        notes=tuple(_notes(found)),
        document=_document(results, reports),
        is_brief=True,
        is_summary=True,
    )


def _shown(result: PlanResult) -> tuple[Candidate, ...]:
    if not result.ranking:
        return (result.shown,) if result.shown else ()
    return result.of_each_device if result.named else result.of_each_device[:_MOST_ROWS]


def _wanted(found: Sequence[PlanResult]) -> str:
    users = next((result.users for result in found if result.users), None)
    contexts = {result.plan.workload.context for result in found}
    length = f" of {contexts.pop():,} tokens" if len(contexts) == 1 else ""
    return f" for {users:,} requests{length} at once" if users else ""


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
    price = result.an_hour(chosen)
    if price is None:
        return chosen.split
    return f"{chosen.split}; {cell(price, 'price')} an hour"


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
        {"model": result.plan.model.model_id, **candidate_document(option, result)}
        for result in results
        if result is not None
        for option in _shown(result)
    ]
    return {
        "schema_version": SCHEMA_VERSION,
        "hardware": hardware,
        "plans": [report.document for report in reports],
    }
