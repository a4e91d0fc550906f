"""What `convert --sweep` does: check all, measure all, keep one."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import isnan
from pathlib import Path
from typing import Any

from headcount.convert.merge.ladder import QUALITIES
from headcount.convert.plan.errors import CheckFailedError, TargetError
from headcount.convert.plan.request import CHOOSING, METHODS, ConversionRequest
from headcount.convert.source_folder import source_folder
from headcount.convert.temporary_folder import temporary_folder
from headcount.evaluate.sweep.sensitivity import sensitivities
from headcount.evaluate.sweep.sweep import CHOSEN, sweep, trials_of
from headcount.evaluate.sweep.sweep_report import sweep_report
from headcount.evaluate.sweep.trial import parse_counts, parse_methods
from headcount.model.errors import HeadcountError
from headcount.report.report import Report
from headcount.running.signals import exit_cleanly, exit_telling, on_signals

from .console import hand_over
from .convert_options import LADDER, with_quality
from .evaluate import check_evaluation
from .report_path import check_report_path

_BARE = ("mean", *CHOOSING)  # without further rungs, whatever the other methods of a sweep take
_RUNGS = ("calibration", "calibration_tokens", *LADDER)


def sweep_model(
    source: str,
    target: Path | None,
    options: Mapping[str, Any],
    evaluation: Mapping[str, Any],
    *,
    counts: str,
    methods: str | None,
    budget: float | None,
    by_layer: bool,
    allow_pickle: bool,
    merge_adapter: bool,
    output: Path | None,
    write: Callable[[list[Report]], None],
) -> None:
    """Converts to each of `counts` by each of `methods` and evaluates; `options` are the other
    fields of a ConversionRequest. `by_layer`: also each layer alone. With a `budget` the smallest
    cache within it is left at `target`, else nothing is. Raises HeadcountError, and
    CheckFailedError where none is within it."""
    if (target is None) != (budget is None):
        raise HeadcountError(
            "a sweep writes the smallest cache within --max-delta-loss to TARGET: give both, or"
            " neither to measure only"
        )
    if budget is not None and isnan(budget):
        raise HeadcountError("--max-delta-loss nan: give a number of nats a token")
    wanted = parse_counts(counts)
    names = parse_methods(methods or _asked(options), (*METHODS, *QUALITIES))
    fields = {
        name: _counted(with_quality(options)) if methods is None else _fields(options, name)
        for name in names
    }
    if methods is not None:
        _refuse_unused(options, names)
    with _place_of(target) as place:
        check_report_path(output, [Path(source), place])
        with source_folder(
            source, place, whole=True, allow_pickle=allow_pickle, merge_adapter=merge_adapter
        ) as found:
            check_evaluation(found.path, **evaluation)
            request = ConversionRequest(
                source=found.path,
                source_name=found.name,
                target=place,
                num_key_value_heads=wanted[0],
                **fields[names[0]],
            )
            if target is not None and target.exists():
                raise TargetError(f"{target}: exists; a sweep takes a name that does not yet")
            trials = trials_of(request, wanted, names, lambda name: fields[name])
            with on_signals(exit_cleanly):
                done = sweep(trials, evaluation, budget=budget, progress=True)
            holds = "nothing was kept" if done.chosen is None else f"{target}: {CHOSEN}"
            with on_signals(exit_telling(holds)):
                if by_layer:
                    layers = sensitivities(trials[-1].plan.request, evaluation, progress=True)
                    trials[-1].plan.source.check()
                    done = replace(done, layers=layers)
    hand_over([sweep_report(done)], holds, write)
    if budget is not None and done.chosen is None:
        raise CheckFailedError(f"no conversion adds at most {budget:g} to the loss: nothing kept")


@contextmanager
def _place_of(target: Path | None) -> Iterator[Path]:
    """Where the trials stand beside: the target, or a name in a folder that goes away."""
    if target is not None:
        yield target
        return
    with temporary_folder("sweep") as aside:
        yield aside / "model"


def _asked(options: Mapping[str, Any]) -> str:
    """What the options name without a list of methods."""
    return str(options["quality"] or options["method"] or "mean")


def _fields(options: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The fields of a request by the method or quality `name`, one of several."""
    if name in QUALITIES:
        return _counted(with_quality({**options, "quality": name, "method": None}))
    if name in _BARE:
        bare = {**options, **dict.fromkeys(("quality", *_RUNGS)), "method": name}
        return _counted(with_quality(bare))
    return _counted(with_quality({**options, "quality": None, "method": name}))


def _refuse_unused(options: Mapping[str, Any], names: Sequence[str]) -> None:
    """Raises HeadcountError for rungs that none of the methods `names` takes."""
    given = [name for name in _RUNGS if options.get(name) not in (None, False)]
    if given and set(names) <= {*_BARE}:
        option = f"--{given[0].replace('_', '-')}"
        raise HeadcountError(
            f"{option}: {', '.join(names)} stand in a sweep without further rungs: name another"
            " method beside them, such as merge or good, or leave it out"
        )


def _counted(fields: dict[str, Any]) -> dict[str, Any]:
    """Without the number of K/V heads, which every trial has its own of."""
    return {key: value for key, value in fields.items() if key != "num_key_value_heads"}
