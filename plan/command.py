"""`plan`: from a model's name and options to a report."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from headcount.audit.auditing import audit_model
from headcount.model.errors import HeadcountError
from headcount.report.report import Report

from .devices import parse_device
from .engines.engine import find_engine
from .engines.registry import PLAIN, SERVING
from .gate import parse_requirements
from .planned_model import PlannedModel
from .report.report import plan_report
from .request import OF_ANY_PLAN, PlanRequest
from .result import plan_result

if TYPE_CHECKING:
    from headcount.audit.audited import Audit


class PlanAnswer(NamedTuple):
    """The report, and whether everything that was required holds."""

    report: Report
    holds: bool


def plan_command(
    name: str,
    *,
    parameters: int | None = None,
    require: str | None = None,
    target_users: int | None = None,
    with_charts: bool = False,
    **options: Any,
) -> PlanAnswer:
    """Plans the model `name`; `options` are those of the command line. Raises HeadcountError."""
    request = _request(needs_engine=bool(require or target_users), **options)
    audit = audit_model(name)
    result = plan_result(
        planned(audit, parameters),
        request,
        requirements=parse_requirements(require) if require is not None else (),
        target_users=target_users,
    )
    report = plan_report(result, with_charts=with_charts)
    findings = [finding.document() for finding in audit.findings]
    document = {**report.document, "findings": findings}
    report = report._replace(findings=audit.findings, document=document)
    return PlanAnswer(report=report, holds=result.holds)


def planned(audit: "Audit", parameters: int | None = None) -> PlannedModel:
    """The model; a count of parameters that is given overrules what its files say. Raises
    HeadcountError for one that does not hold the model's layers."""
    least = sum(layer.parameters().total for layer in audit.spec.layers)
    if parameters is not None and parameters < least:
        raise HeadcountError(
            f"--parameters {parameters:,}: the attention and the state of the"
            f" {len(audit.spec.layers)} layers of {audit.source.id} alone have {least:,}"
        )
    return PlannedModel(
        model_id=audit.source.id,
        spec=replace(audit.spec, parameters=parameters) if parameters else audit.spec,
        config=audit.config,
        weights_bytes=None if parameters else audit.loaded_bytes,
        has_experts=audit.has_experts,
    )


def _request(
    *,
    needs_engine: bool,
    device: str | None,
    utilisation: float | None,
    engine: str | None = None,
    engine_version: str | None = None,
    offline: bool = False,
    **options: Any,
) -> PlanRequest:
    """What is not given is left to its default."""
    needs_engine = needs_engine or bool(engine_version) or offline or bool(options.get("kv_memory"))
    needs_engine = needs_engine or any(options[name] for name in options.keys() - OF_ANY_PLAN)
    found = find_engine(engine or (SERVING if needs_engine else PLAIN))
    return PlanRequest(
        engine=found.name,
        version=found.releases.parse(engine_version) if engine_version else None,
        device=parse_device(device) if device else None,
        utilisation=utilisation,
        usage="offline" if offline else "server",
        **{name: value for name, value in options.items() if value is not None},
    )
