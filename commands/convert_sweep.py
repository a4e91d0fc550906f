"""What `convert --sweep` does: check all, measure all, keep one."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headcount.convert.plan.errors import CheckFailedError
from headcount.library.sweep_trials import sweep_trials
from headcount.library.sweeps import with_layers
from headcount.report.report import Report
from headcount.running.asked_for import read_twice
from headcount.running.signals import exit_cleanly, exit_telling, on_signals

from .console import hand_over
from .output.report_path import check_report_path
from .output.telling import say_warnings


def sweep_model(
    source: str,
    target: Path | None,
    options: Mapping[str, Any],
    evaluation: Mapping[str, Any],
    *,
    budget: float | None,
    by_layer: bool,
    output: Path | None,
    write: Callable[[Sequence[Report]], None],
    **grid: Any,
) -> None:
    """Converts and evaluates as `sweep_trials` has it. `by_layer`: also each layer alone. With a
    `budget` the smallest cache within it is left at `target`, else nothing is. Raises
    HeadcountError, and CheckFailedError where none is within it."""
    check_report_path(output, [Path(source), *([] if target is None else [target])])
    with sweep_trials(
        source, target, options, evaluation, budget=budget, by_layer=by_layer, **grid
    ) as trials:
        # These import torch, which what was refused did without.
        from headcount.evaluate.sweep.sweep import CHOSEN, sweep
        from headcount.evaluate.sweep.sweep_report import sweep_report

        with on_signals(exit_cleanly):
            done = sweep(trials, evaluation, budget=budget, progress=True)
        holds = "nothing was kept" if done.chosen is None else f"{target}: {CHOSEN}"
        with on_signals(exit_telling(holds)):
            if by_layer:
                done = with_layers(done, trials, evaluation, progress=True)
    said = read_twice(options["calibration"], evaluation)  # before the work
    say_warnings(line for line in done.warnings if line not in said)
    hand_over([sweep_report(done)], holds, write)
    if budget is not None and done.chosen is None:
        raise CheckFailedError(
            f"no conversion adds at most {budget:g} to the loss and has a KL divergence of at most"
            " that: nothing kept"
        )
