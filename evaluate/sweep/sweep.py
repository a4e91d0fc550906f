"""Converts, evaluates and forgets, one trial after the other; the one that is wanted is kept."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headcount.convert.conversion import apply_plan
from headcount.convert.plan.leftovers import leftovers, own_folder, real_place
from headcount.convert.plan.target import check_target
from headcount.convert.stream.os_failures import writing
from headcount.running.asked_for import read_twice
from headcount.running.passing_folder import passing_folder, remove_folder
from headcount.running.progress import progress_bar
from headcount.running.signals import SIGNALLED
from headcount.sources.identity import check_identity

from ..evaluation import evaluate
from ..evaluation_document import EvaluationReport, ModelScore, Settings
from ..evaluation_request import EvaluationRequest
from .sensitivity import LayerSensitivity
from .trial import Measured, Trial, smallest_within

_KIND = "sweep"
# Said when a signal ends the process after the target has got its name.
CHOSEN = "is complete: the conversion that the sweep chose"


@dataclass(frozen=True, kw_only=True, slots=True)
class Sweep:
    """What was measured: the original, every trial, and the one that the budget chose, which
    is at the target now. `tokens` were scored by `settings`. `layers` are the layers converted
    alone, to the fewest heads of the sweep; empty if that was not asked for. `warnings` are about
    the texts."""

    source: str
    original: Measured
    trials: tuple[Measured, ...]
    budget: float | None
    chosen: Measured | None
    settings: Settings
    tokens: int
    layers: tuple[LayerSensitivity, ...] = ()
    warnings: tuple[str, ...] = ()


def sweep(
    trials: Sequence[Trial], evaluation: Mapping[str, Any], *, budget: float | None, progress: bool
) -> Sweep:
    """Measures all of `trials`, which have one source and one target. With a `budget`, in nats a
    token, the smallest cache whose loss added and KL divergence are both within it becomes the
    target. Raises what a conversion raises."""
    target, chosen = trials[0].plan.request.target, None
    _check_one_source(trials)
    twice = _read_twice(trials, evaluation)
    try:
        with writing(target, 0), _workshop(target) as shop:
            measured, original, report = _measure(trials, evaluation, shop, budget, progress)
            chosen = None if budget is None else smallest_within(measured, budget)
            if chosen is not None:
                check_target(trials[0].plan.request.source, target)
                (shop / str(measured.index(chosen))).rename(target)
    except SIGNALLED:
        if chosen is not None and target.is_dir():
            print(f"{target}: {CHOSEN}", file=sys.stderr)
        raise
    request = trials[0].plan.request
    tokenizer = evaluation.get("tokenizer") or request.source_name or request.source
    return Sweep(
        source=request.source_name or request.source.name,
        original=original,
        trials=tuple(measured),
        budget=budget,
        chosen=chosen,
        settings=replace(report.settings, tokenizer=str(tokenizer)),  # not a trial's, that is gone
        tokens=report.model.tokens,
        warnings=(*twice, *report.of_text),
    )


def _read_twice(trials: Sequence[Trial], evaluation: Mapping[str, Any]) -> tuple[str, ...]:
    """Of the one text that trials are fitted to, if any is."""
    texts = {trial.plan.request.calibration for trial in trials if trial.calibrated}
    return tuple(line for text in texts for line in read_twice(text, evaluation))


def _measure(
    trials: Sequence[Trial],
    evaluation: Mapping[str, Any],
    shop: Path,
    budget: float | None,
    progress: bool,
) -> tuple[list[Measured], Measured, EvaluationReport]:
    """All of them, the original, and the last evaluation; the best within `budget` is in `shop`."""
    measured: list[Measured] = []
    original: Measured | None = None
    report: EvaluationReport | None = None
    bar = progress_bar(trials, "sweep", "trial", shown=progress)
    for number, trial in enumerate(bar):
        place = shop / str(number)
        there = replace(trial.plan.request, target=place)
        apply_plan(replace(trial.plan, request=there), progress=progress, resumable=False)
        report = evaluate(
            EvaluationRequest(
                model=str(place),
                against=str(there.source),
                **{**evaluation, "speed": False, "behaviour": "none", "roles": False},
            )
        )
        trial.plan.source.check()
        measured.append(_measured(trial, report))
        original = original or _original(trial, report)
        _keep_best(shop, measured, budget)
    assert original is not None and report is not None
    return measured, original, report


def _check_one_source(trials: Sequence[Trial]) -> None:
    """Raises SourceChangedError if the source changed between the plans of two trials."""
    first = dict(trials[0].plan.source.files)
    for trial in trials:
        for path, identity in trial.plan.source.files:
            check_identity(path, identity, first.get(path, identity))


def _keep_best(shop: Path, measured: Sequence[Measured], budget: float | None) -> None:
    """Removes every output that can no longer be the one that is wanted."""
    best = None if budget is None else smallest_within(measured, budget)
    for number, one in enumerate(measured):
        if one is not best:
            remove_folder(shop / str(number))


@contextmanager
def _workshop(target: Path) -> Iterator[Path]:
    """A folder beside the target, so that what is chosen only has to be renamed."""
    for left in leftovers(target, _KIND):
        remove_folder(left)
        print(f"removed {left}, which a killed sweep had left", file=sys.stderr)
    with passing_folder(own_folder(real_place(target), _KIND)) as shop:
        yield shop


def _measured(trial: Trial, report: EvaluationReport) -> Measured:
    assert report.comparison is not None and report.delta_loss is not None
    return _scored(
        trial,
        trial.num_key_value_heads,
        report.model,
        delta_loss=report.delta_loss,
        kl_divergence=report.comparison.kl_divergence,
        top1_agreement=report.comparison.top1_agreement,
    )


def _original(trial: Trial, report: EvaluationReport) -> Measured:
    assert report.against is not None
    before = max(layer.before for layer in trial.plan.layers)
    return _scored(
        None, before, report.against, delta_loss=0.0, kl_divergence=0.0, top1_agreement=1.0
    )


def _scored(
    trial: Trial | None, heads: int | None, score: ModelScore, **compared: float
) -> Measured:
    cache = score.cache
    held = cache.measured if cache.measured is not None else cache.predicted
    return Measured(
        trial=trial,
        num_key_value_heads=heads,
        loss=score.loss,
        cache_bytes=held or 0,
        cache_tokens=cache.tokens,
        **compared,
    )
