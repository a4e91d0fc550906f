"""What the command `convert` does: plan, apply, evaluate, and hand over the reports."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headcount.commands.conversion_options import LADDER
from headcount.report.report import Report

from .as_report import conversion_report, plan_report
from .conversion import ConversionReport, apply_plan
from .merge.ladder import QUALITIES, Ladder, Quality
from .plan.errors import CheckFailedError
from .plan.planner import plan_conversion
from .plan.request import ConversionRequest, parse_key_value_heads
from .report_path import check_report_path
from .signals import exit_cleanly, on_signals
from .source_folder import SourceFolder, source_folder


def convert_model(
    source: str,
    target: Path,
    options: Mapping[str, Any],
    evaluation: Mapping[str, Any] | None,
    *,
    allow_pickle: bool,
    checks: bool,
    dry_run: bool,
    output: Path | None,
    write: Callable[[list[Report]], None],
) -> None:
    """Converts with `options`, the fields of a ConversionRequest by their names, and evaluates with
    the options `evaluation` if they are given; `checks`: runs source and result. `write` gets the
    reports, `output` is the file that it writes. Raises HeadcountError, CheckFailedError."""
    check_report_path(output, (Path(source), target))
    with source_folder(source, target, whole=not dry_run, allow_pickle=allow_pickle) as found:
        request = _request(found, target, options)
        plan = plan_conversion(request)
        if evaluation is not None:
            from headcount.evaluate.command import check_evaluation

            check_evaluation(found.path, **evaluation)
        if dry_run:
            write([plan_report(plan)])
            return
        with on_signals(exit_cleanly):
            done = apply_plan(plan)
        reports, problems = [conversion_report(done)], ""
        try:
            if checks:
                problems = _check(found.path, target, done, reports)
            if evaluation is not None:
                from headcount.evaluate.command import run_evaluation

                reports.append(run_evaluation(str(target), str(found.path), **evaluation))
        finally:  # an evaluation that fails does not undo the conversion
            write(reports)
        if problems:
            raise CheckFailedError(f"{target}: {problems}; the output is kept")


def _check(source: Path, target: Path, done: ConversionReport, reports: list[Report]) -> str:
    """Adds the report of a check; what is wrong, in one line."""
    from .check import check_conversion
    from .check_report import check_report

    checked = check_conversion(
        source, target, lossless=all(layer.lossless for layer in done.layers)
    )
    reports.append(check_report(checked))
    return "; ".join(checked.problems)


def _request(found: SourceFolder, target: Path, options: Mapping[str, Any]) -> ConversionRequest:
    wanted = parse_key_value_heads(options["num_key_value_heads"])
    return ConversionRequest(
        source=found.path,
        source_name=found.name,
        source_made=found.made,
        target=target,
        **{**with_quality(options), "num_key_value_heads": wanted},
    )


def with_quality(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with the rungs of `quality`, which is none of a request's fields, in place of
    those that are None. Choosing a head has no further rungs, and takes none."""
    given = {name: value for name, value in options.items() if name not in ("quality", *LADDER)}
    explicit = {name: options[name] for name in LADDER if options.get(name) is not None}
    quality: Quality | None = options.get("quality")
    bundle = asdict(Ladder() if quality is None else QUALITIES[quality])
    return {**given, **{name: bundle[name] for name in LADDER}, **explicit}
