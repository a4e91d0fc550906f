"""`plan`: from a model's name and options to a report, with an engine or without."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from headcount.audit.auditing import audit_model
from headcount.report.report import Report

from .devices import Device, parse_device
from .request import UTILISATION, PlanRequest

if TYPE_CHECKING:
    from headcount.audit.audited import Audit

    from .serving.request import ServingRequest, Subject

# Options that only an engine can answer: any of them asks for one.
_PLAIN = ("context", "batch_size", "encoder_tokens", "dtype", "kv_dtype", "tp")


class Answer(NamedTuple):
    """The report, and whether everything that was required holds."""

    report: Report
    holds: bool = True


def plan_command(
    model: str,
    *,
    device: str | None,
    parameters: int | None,
    utilisation: float | None,
    with_charts: bool = False,
    **options: Any,
) -> Answer:
    """Plans `model`. Raises HeadcountError."""
    found = parse_device(device) if device else None
    audit = audit_model(model)
    plain = {name: options.pop(name) for name in _PLAIN}
    if any(options.values()):
        answer = _with_engine(
            audit, parameters, found, utilisation, plain, {**options, "with_charts": with_charts}
        )
    else:
        request = PlanRequest(device=found, utilisation=utilisation or UTILISATION, **plain)
        answer = Answer(_without(audit, parameters, request, with_charts))
    report = answer.report
    findings = [finding.document() for finding in audit.findings]
    document = {**report.document, "findings": findings}
    return answer._replace(report=report._replace(findings=audit.findings, document=document))


def _without(
    audit: "Audit", parameters: int | None, request: PlanRequest, with_charts: bool = False
) -> Report:
    from .report import plan_report

    return plan_report(
        replace(audit.spec, parameters=parameters) if parameters else audit.spec,
        request,
        model_id=audit.source.id,
        weights_bytes=None if parameters else audit.loaded_bytes,
        config=audit.config,
        with_charts=with_charts,
    )


def _with_engine(
    audit: "Audit",
    parameters: int | None,
    device: Device | None,
    utilisation: float | None,
    plain: dict[str, Any],
    options: dict[str, Any],
) -> Answer:
    from .serving.command import answer, serving_request

    subject = _subject(audit, parameters)
    require, users = options.pop("require"), options.pop("target_users")
    with_charts = options.pop("with_charts")
    version, offline = options.pop("engine_version"), options.pop("offline")
    given = {name: value for name, value in {**options, **plain}.items() if value is not None}
    request = serving_request(
        given.pop("engine", None),
        version,
        device=device,
        utilisation=utilisation,
        usage="offline" if offline else "server",
        **given,
    )
    title = f"Plan of {subject.model_id} ({subject.spec.model_type}) with {request.engine}"
    found = answer(
        subject,
        request,
        title=title,
        require=require,
        target_users=users,
        with_charts=with_charts,
        base=_base(audit, parameters, request),
    )
    return Answer(found.report, found.holds)


def _subject(audit: "Audit", parameters: int | None) -> "Subject":
    """The model; a count of parameters that is given overrules what its files say."""
    from .serving.request import Subject

    spec = replace(audit.spec, parameters=parameters) if parameters else audit.spec
    return Subject(
        model_id=audit.source.id,
        spec=spec,
        config=audit.config,
        weights_bytes=None if parameters else audit.loaded_bytes,
    )


def _base(audit: "Audit", parameters: int | None, request: "ServingRequest") -> dict[str, object]:
    """The document of the plan without an engine; empty where the model's weights are not known,
    which given K/V memory does not need."""
    from .serving.planning import plain_request

    if parameters is None and audit.loaded_bytes is None and audit.spec.parameters is None:
        return {}
    return dict(_without(audit, parameters, plain_request(request)).document)
