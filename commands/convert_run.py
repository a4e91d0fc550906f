"""What `convert` does: plan, apply, check, evaluate, and hand over the reports."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headcount.convert.plan.errors import CheckFailedError
from headcount.convert.plan.plan import ConversionPlan
from headcount.convert.plan.planner import plan_conversion
from headcount.convert.plan_report import conversion_plan_report
from headcount.convert.source_folder import SourceFolder, source_folder
from headcount.library.conversions import checked_conversion, conversion_request
from headcount.library.evaluations import check_evaluation
from headcount.model.errors import HeadcountError
from headcount.report.report import Report, in_one_document
from headcount.running.asked_for import read_twice
from headcount.running.signals import exit_cleanly, exit_telling, on_signals

from .console import hand_over
from .evaluate import run_evaluation
from .output.report_path import check_report_path


def convert_model(
    source: str,
    target: Path,
    options: Mapping[str, Any],
    evaluation: Mapping[str, Any] | None,
    *,
    allow_pickle: bool,
    merge_adapter: bool,
    checks: bool,
    dry_run: bool,
    output: Path | None,
    write: Callable[[Sequence[Report]], None],
) -> None:
    """Converts with `options`, the fields of a ConversionRequest by their names, and evaluates with
    the options `evaluation` if they are given; `checks`: runs source and result. `write` gets the
    reports, `output` is the file that it writes. Raises HeadcountError, CheckFailedError."""
    check_report_path(output, (Path(source), target))

    def planned(found: SourceFolder) -> ConversionPlan:
        plan = plan_conversion(conversion_request(found, target, options))
        if evaluation is not None:
            check_evaluation(found.path, **evaluation)
        return plan

    with source_folder(
        source,
        target,
        whole=not dry_run,
        allow_pickle=allow_pickle,
        merge_adapter=merge_adapter,
        judge=planned,
    ) as found:
        plan = planned(found)
        if dry_run:
            write([conversion_plan_report(plan)])
            return
        # These import torch, which a plan, and what it refuses, does without.
        from headcount.convert.conversion import COMPLETE, apply_plan
        from headcount.convert.conversion_report import conversion_report

        with on_signals(exit_cleanly):
            done = apply_plan(plan)
        told = conversion_report(done, is_evaluated=evaluation is not None)
        holds = f"{target}: {COMPLETE}"
        with on_signals(exit_telling(holds)):
            more: dict[str, Report] = {}
            problems = ""
            failure: HeadcountError | None = None
            try:
                if checks:
                    more["check"], problems = checked_conversion(target, done)
                if evaluation is not None:
                    more["evaluation"], failure = run_evaluation(
                        str(target),
                        str(found.path),
                        card=True,
                        # of a text the evaluation says it itself
                        said=read_twice(options["calibration"], {"pairs": evaluation.get("pairs")}),
                        **evaluation,
                    )
                    plan.source.check()
            finally:  # an evaluation that fails does not undo the conversion
                hand_over(in_one_document(told, more), holds, write)
            if problems:
                raise CheckFailedError(f"{target}: {problems}; the output is kept")
            if failure is not None:
                raise failure
