"""A plan as a Report."""

from headcount.model.units import format_count
from headcount.report.report import Chart, Report

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
