"""What the command `convert` does: plan, apply, evaluate, and hand over the reports."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headcount.audit.report import Report
from headcount.audit.signals import exit_cleanly, on_signals

from .as_report import conversion_report, plan_report
from .conversion import apply_plan
from .plan.planner import plan_conversion
from .plan.request import ConversionRequest
from .report_path import check_report_path


def convert_model(
    request: ConversionRequest,
    evaluation: Mapping[str, Any] | None,
    *,
    dry_run: bool,
    output: Path | None,
    write: Callable[[list[Report]], None],
) -> None:
    """Converts, and evaluates with the options `evaluation` if they are given; `write` gets the
    reports, `output` is the file that it writes. Raises HeadcountError."""
    check_report_path(output, (request.source, request.target))
    plan = plan_conversion(request)
    if evaluation is not None:
        from .evaluate.command import check_evaluation

        check_evaluation(request.source, **evaluation)
    if dry_run:
        write([plan_report(plan)])
        return
    with on_signals(exit_cleanly):
        reports = [conversion_report(apply_plan(plan))]
    try:
        if evaluation is not None:
            from .evaluate.command import run_evaluation

            reports.append(run_evaluation(str(request.target), str(request.source), **evaluation))
    finally:  # an evaluation that fails does not undo the conversion
        write(reports)
