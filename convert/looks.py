"""What the heavy half adds to an audit's report: a scan of the weights, the built model."""

from headcount.audit.audit_report import audit_report
from headcount.audit.audited import Audit
from headcount.model.sizes import AuditRequest
from headcount.report.report import Report


def look(audit: Audit, request: AuditRequest, *, scan: bool, verify: bool) -> Report:
    """The audit's report with what was asked for beside it. Raises HeadcountError."""
    if scan:
        from .scan.report import scan_report

        report = scan_report(audit, request)
    else:
        report = audit_report(audit, request)
    if verify:
        from headcount.running.built.report import with_verification

        report = with_verification(report, audit)
    return report
