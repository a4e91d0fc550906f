"""`plan --engine`: from options to a report."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from headcount.model.errors import HeadcountError
from headcount.report.report import Fact, Report

from ..devices import all_devices
from ..engines.version import newest, parse_version
from .changes import changes
from .conversion import bought
from .curves import curve
from .document import engine_document, search_document
from .gate import Requirement, check, parse_requirements
from .launch import launch_command
from .planning import ServingPlan, plan_serving
from .report import engine_facts, engine_notes, engine_tables, search_table
from .request import ServingRequest, Subject
from .search import Option, options, smallest


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The report, and whether everything that was required holds."""

    report: Report
    holds: bool


def serving_request(engine: str | None, version: str | None, **given: Any) -> ServingRequest:
    """A request from the options of a command line. Raises HeadcountError."""
    name = engine or "vllm"
    found = parse_version(version, name) if version else newest(name)
    return ServingRequest(engine=name, version=found, **given)


def answer(
    subject: Subject,
    request: ServingRequest,
    *,
    title: str,
    require: str | None = None,
    target_users: int | None = None,
    with_charts: bool = False,
    base: Mapping[str, object] | None = None,
) -> Answer:
    """The report of `request`, or of the search where no device is named or users are given.

    `base` are the keys of the plan without an engine. Raises HeadcountError.
    """
    requirements = parse_requirements(require) if require else ()
    if target_users is not None:
        request = replace(request, batch_size=target_users)
    is_search = target_users is not None or (request.device is None and request.kv_memory is None)
    if is_search and request.kv_memory is not None:
        raise HeadcountError("--target-users searches devices: leave out --kv-memory")
    if is_search:
        return _search(subject, request, requirements, title, dict(base or {}))
    plan = plan_serving(subject, request)
    found = _one(plan, requirements, title, dict(base or {}))
    if not with_charts:
        return found
    from .charts import engine_charts

    charts = tuple(engine_charts(plan, curve(plan)))
    return replace(found, report=found.report._replace(charts=charts))


def _one(
    plan: ServingPlan,
    requirements: tuple[Requirement, ...],
    title: str,
    base: dict[str, object],
) -> Answer:
    found, points, rows = changes(plan), curve(plan), bought(plan)
    held, notes = check(plan, requirements), tuple(engine_notes(plan))
    engine = engine_document(
        plan, changes=found, curve=points, conversion=rows, held=held, notes=notes
    )
    report = Report(
        title=title,
        facts=tuple(engine_facts(plan, found, held)),
        tables=tuple(engine_tables(plan, points, rows)),
        notes=notes,
        document={**base, "fits": plan.fits, "engine": engine},
    )
    return Answer(report=report, holds=all(item.holds for item in held))


def _search(
    subject: Subject,
    request: ServingRequest,
    requirements: tuple[Requirement, ...],
    title: str,
    base: dict[str, object],
) -> Answer:
    """Requirements hold if they do for one of the options."""
    devices = all_devices() if request.device is None else (request.device,)
    found = options(subject, request, devices)
    best = smallest(found)
    engine = search_document(request.engine, request.version.text, found, best)
    holds = not requirements or any(
        all(item.holds for item in check(option.plan, requirements)) for option in found
    )
    report = Report(
        title=title,
        facts=tuple(_best(best, request)),
        tables=(search_table(best or found),),
        notes=tuple(engine_notes(found[0].plan)),
        document={**base, "fits": bool(best), "engine": {**engine, "holds": holds}},
    )
    return Answer(report=report, holds=holds)


def _best(best: tuple[Option, ...], request: ServingRequest) -> Iterator[Fact]:
    wanted = f"{request.batch_size:,} requests at once"
    if not best:
        yield Fact("verdict", "Verdict", "no device of the table suffices", "text", wanted)
        return
    first = best[0]
    count = f"{first.tp} x " if first.tp > 1 else ""
    yield Fact("verdict", "Verdict", f"least memory: {count}{first.device.name}", "text", wanted)
    yield Fact("launch_command", "Start with", launch_command(first.plan))
