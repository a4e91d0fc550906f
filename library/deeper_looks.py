"""What the heavy half adds to the report of an audit."""

from typing import TYPE_CHECKING

from headcount.running.extra import need_extra

if TYPE_CHECKING:
    from headcount.audit.audited import Audit
    from headcount.audit.several import Look
    from headcount.model.sizes import AuditRequest
    from headcount.report.report import Report


def deeper_look(*, scan: bool, verify: bool) -> "Look | None":
    """What makes the report of an audit with a scan of the weights and the built model, as asked
    for; None where neither is. Raises MissingExtraError."""
    if not (scan or verify):
        return None
    need_extra("--scan" if scan else "--verify")
    return lambda audit, request: _look(audit, request, scan=scan, verify=verify)


def _look(audit: "Audit", request: "AuditRequest", *, scan: bool, verify: bool) -> "Report":
    if scan:
        from headcount.convert.scan.report import scan_report

        report = scan_report(audit, request)
    else:
        from headcount.audit.audit_report import audit_report

        report = audit_report(audit, request)
    if verify:
        from headcount.running.built.verify_report import with_verification

        report = with_verification(report, audit)
    return report._replace(is_brief=False)  # it was asked for
