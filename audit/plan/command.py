"""What the command `plan` does: audit the model, plan its memory, report both."""

from dataclasses import replace
from typing import Any

from ..auditing import audit_model
from ..report import Report
from .devices import parse_device
from .report import plan_report
from .request import PlanRequest


def plan_model(model: str, device: str | None, parameters: int | None, **request: Any) -> Report:
    """The plan of `model` on `device` (None: every device); `parameters` where the config does not
    tell. Raises HeadcountError."""
    audit = audit_model(model)
    report = plan_report(
        replace(audit.spec, parameters=parameters) if parameters else audit.spec,
        PlanRequest(device=parse_device(device) if device else None, **request),
        model_id=audit.source.id,
        weights_bytes=None if parameters else audit.loaded_bytes,
        config=audit.config,
    )
    found = [finding.document() for finding in audit.findings]
    document = {**report.document, "findings": found}
    return report._replace(findings=audit.findings, document=document)
