"""The audits of all models of one command, with their reports, and a table that compares them."""

from collections.abc import Callable, Sequence

from headcount.model.errors import HeadcountError
from headcount.model.sizes import AuditRequest
from headcount.report.report import Report

from .audit_report import audit_report, error_report
from .audited import Audit
from .auditing import audit_model

Look = Callable[[Audit, AuditRequest], Report]


def audit_all(
    models: Sequence[str],
    request: AuditRequest,
    *,
    config: str | None = None,
    strict: bool = False,
    select: tuple[str, ...] = (),
    ignore: tuple[str, ...] = (),
    compare: bool = False,
    more: Look | None = None,
) -> tuple[list[Report], bool]:
    """A report per model, and whether one of several could not be audited: it has an error report.

    `more` makes the report of an audit, with what the heavy half adds. `compare`: several models
    end in a table. Raises HeadcountError for a single model.
    """
    reports: list[Report] = []
    audits: list[tuple[str, Audit | None]] = []
    for model in models:
        try:
            found = audit_model(model, config, strict=strict)
            reports.append((more or audit_report)(found, request))
            audits.append((model, found))
        except HeadcountError as error:
            if len(models) == 1:
                raise
            reports.append(error_report(model, error))
            audits.append((model, None))
    if select or ignore:
        from .rules.registry import choose

        reports = [choose(report, select, ignore) for report in reports]
    if compare and len(models) > 1:
        from .comparison import comparison_report

        reports.append(comparison_report(audits, request))
    return reports, any(found is None for _, found in audits)
