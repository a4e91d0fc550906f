"""A plan as a Report: pure, from a ModelSpec and a request."""

from collections.abc import Mapping
from typing import Any

from headcount.model.spec import ModelSpec
from headcount.model.units import format_count
from headcount.report.report import Chart, Report

from .document import plan_document
from .facts import plan_facts
from .notes import assumptions, warnings
from .planning import ModelPlan, plan_model
from .request import PlanRequest
from .tables import plan_tables


def plan_report(
    spec: ModelSpec,
    request: PlanRequest,
    *,
    model_id: str,
    weights_bytes: int | None = None,
    config: Mapping[str, Any] | None = None,
    with_charts: bool = False,
) -> Report:
    """The report of a plan: facts, tables, notes and the JSON document. Raises HeadcountError.

    `weights_bytes` are those of the headers, where they are at hand; `config` is the model's, for
    its quantisation and whether it has experts.
    """
    plan = plan_model(spec, request, model_id=model_id, weights_bytes=weights_bytes, config=config)
    tables = tuple(plan_tables(plan))
    return Report(
        title=_title(plan),
        facts=tuple(plan_facts(plan)),
        tables=tables,
        notes=(*(f"Warning: {text}" for text in warnings(plan)), *assumptions(plan)),
        document=plan_document(plan),
        charts=_charts(plan) if with_charts else (),
    )


def _title(plan: ModelPlan) -> str:
    spec = plan.spec
    parameters = "" if spec.parameters is None else f", {format_count(spec.parameters)} parameters"
    return f"Plan of {plan.model_id} ({spec.model_type}{parameters})"


def _charts(plan: ModelPlan) -> tuple[Chart, ...]:
    from .charts import plan_charts

    return plan_charts(plan)
