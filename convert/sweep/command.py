"""What `convert --sweep` does: check all, measure all, keep one."""

from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from headcount.audit.errors import HeadcountError
from headcount.audit.report import Report
from headcount.audit.signals import exit_cleanly, on_signals

from ..evaluate.command import check_evaluation
from ..plan.errors import CheckFailedError
from ..plan.request import METHODS, ConversionRequest
from ..report_path import check_report_path
from ..source_folder import source_folder
from .as_report import sweep_report
from .sweep import sweep, trials_of
from .trial import parse_counts, parse_methods


def sweep_model(
    source: str,
    target: Path | None,
    options: Mapping[str, Any],
    evaluation: Mapping[str, Any],
    *,
    counts: str,
    methods: str | None,
    budget: float | None,
    allow_pickle: bool,
    output: Path | None,
    write: Callable[[list[Report]], None],
) -> None:
    """Converts to each of `counts` by each of `methods` and evaluates; `options` are the other
    fields of a ConversionRequest. With a `budget` the smallest cache within it is left at `target`,
    else nothing is. Raises HeadcountError, and CheckFailedError where none is within it."""
    if (target is None) != (budget is None):
        raise HeadcountError(
            "a sweep writes the smallest cache within --max-delta-loss to TARGET: give both, or"
            " neither to measure only"
        )
    wanted = parse_counts(counts)
    names = parse_methods(methods or options["method"], METHODS)
    with TemporaryDirectory(prefix="headcount-sweep-") as aside:
        place = target or Path(aside) / "model"
        check_report_path(output, [Path(source), place])
        with source_folder(source, place, whole=True, allow_pickle=allow_pickle) as found:
            check_evaluation(found.path, **evaluation)
            request = ConversionRequest(
                source=found.path,
                source_name=found.name,
                target=place,
                **{**options, "num_key_value_heads": wanted[0]},
            )
            trials = trials_of(request, wanted, names, lambda name: {"method": name})
            with on_signals(exit_cleanly):
                done = sweep(trials, evaluation, budget=budget, progress=True)
    write([sweep_report(done)])
    if budget is not None and done.chosen is None:
        raise CheckFailedError(f"no conversion adds at most {budget:g} to the loss: nothing kept")
