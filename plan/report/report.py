"""A plan as a Report."""

from collections.abc import Iterator

from headcount.model.units import format_count
from headcount.report.report import Bar, Chart, Report

from ..plan import Plan
from ..result import PlanResult
from .document import plan_document
from .facts import plan_facts
from .notes import report_notes
from .tables import plan_tables


def plan_report(result: PlanResult, *, with_charts: bool = False) -> Report:
    """Facts, tables, notes and the JSON document of a plan."""
    return Report(
        title=_title(result.plan),
        facts=tuple(plan_facts(result)),
        tables=tuple(plan_tables(result)),
        notes=tuple(report_notes(result)),
        document=plan_document(result),
        charts=_charts(result) if with_charts else (),
        bars=() if result.chosen else tuple(_bars(result.plan)),  # a table says more of several
        is_brief=True,
    )


def _title(plan: Plan) -> str:
    spec = plan.spec
    name = f"Plan of {plan.model.model_id} ({spec.model_type}"
    if plan.engine.starts:
        return f"{name}) with {plan.engine.name}"
    count = "" if spec.parameters is None else f", {format_count(spec.parameters)} parameters"
    return f"{name}{count})"


def _charts(result: PlanResult) -> tuple[Chart, ...]:
    from .charts import plan_charts  # only a page wants them

    return plan_charts(result)


def _bars(plan: Plan) -> Iterator[Bar]:
    """Weights, cache and the rest of what is planned with, where a device says how much that is."""
    if plan.budget_bytes is None or plan.refusals:
        return
    weights, cache = plan.weights_bytes or 0, plan.kv_cache_bytes
    parts = (
        ("weights", weights),
        ("KV cache", cache),
        ("other", plan.total_bytes - weights - cache),
    )
    held = tuple((name, nbytes) for name, nbytes in parts if nbytes)
    yield Bar(held, plan.budget_bytes, " each" if plan.request.ranks > 1 else "")
