"""The trials of a sweep, from its options."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import isnan
from pathlib import Path
from typing import Any

from headcount.convert.merge.ladder import EITHER_WAY, QUALITIES, WITH_TEXT, Ladder
from headcount.convert.plan.errors import TargetError
from headcount.convert.plan.pruning import parse_pruned_heads
from headcount.convert.plan.quality import LADDER, with_quality
from headcount.convert.plan.request import CHOOSING, METHODS, ConversionRequest
from headcount.convert.source_folder import SourceFolder, source_folder
from headcount.convert.temporary_folder import temporary_folder
from headcount.evaluate.sweep.planned_trials import trials_of
from headcount.evaluate.sweep.trial import Trial, parse_methods, parse_sizes
from headcount.model.errors import HeadcountError

from .evaluations import check_evaluation

_BARE = ("mean", *CHOOSING)  # without further rungs, whatever the other methods of a sweep take
_TEXT = ("calibration", "calibration_tokens", "calibration_row_tokens")
_RUNGS = (*_TEXT, "calibration_device", *LADDER)


@contextmanager
def sweep_trials(
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
) -> Iterator[tuple[Trial, ...]]:
    """Conversions to each of `counts` by each of `methods`, all planned and none made; `options`
    are the other fields of a ConversionRequest, and `evaluation` those of an EvaluationRequest. The
    source is there inside. Raises HeadcountError."""
    if (target is None) != (budget is None):
        raise HeadcountError(
            "a sweep writes the smallest cache within --max-delta-loss to TARGET: give both, or"
            " neither to measure only"
        )
    if budget is not None and isnan(budget):
        raise HeadcountError("--max-delta-loss nan: give a number of nats a token")
    if budget is not None and budget < 0:
        raise HeadcountError(
            f"--max-delta-loss {budget:g}: no conversion is within it: the KL divergence may not be"
            " more than it either, and is never below 0"
        )
    _check_together(options, methods, by_layer)
    wanted, swept = parse_sizes(counts)
    if not wanted and by_layer:
        raise HeadcountError("--by-layer: is of K/V heads: name a number of them in --sweep")
    fields = dict(_named_fields(options, methods))
    latents = [(latent, *own) for latent in swept for own in _latent_fields(options, methods)]
    if methods is not None:
        _refuse_unused(options, fields)
    fields = dict(_pruned(fields, options["pruned_heads"]))
    names = tuple(fields)
    with _place_of(target) as place:

        def planned(found: SourceFolder) -> tuple[Trial, ...]:
            if target is not None and target.exists():
                raise TargetError(f"{target}: exists; a sweep takes a name that does not yet")
            request = ConversionRequest(
                source=found.path,
                source_name=found.name,
                target=place,
                num_key_value_heads=wanted[0] if wanted else 1,
                **fields[names[0]],
            )
            trials = trials_of(request, wanted, names, lambda name: fields[name], latents)
            check_evaluation(found.path, **evaluation)  # imports transformers, unlike plans
            return trials

        with source_folder(
            source,
            place,
            whole=True,
            allow_pickle=allow_pickle,
            merge_adapter=merge_adapter,
            judge=planned,
        ) as found:
            yield planned(found)


def _check_together(options: Mapping[str, Any], methods: str | None, by_layer: bool) -> None:
    """Raises HeadcountError for options that leave each other no say."""
    why = ""
    if by_layer and options["pruned_heads"] is not None:
        why = (
            "--by-layer tells what fewer K/V heads cost each layer: leave out --prune-heads, or"
            " this"
        )
    for name in ("method", "quality"):
        if methods is not None and options[name] is not None:
            why = f"--{name} does not go with --sweep-methods: name it there"
    if methods is None and options["method"] is not None and options["quality"] is not None:
        why = "--quality does not go with --method in a sweep: --sweep-methods takes names of both"
    if why:
        raise HeadcountError(why)


@contextmanager
def _place_of(target: Path | None) -> Iterator[Path]:
    """Where the trials stand beside: the target, or a name in a folder that goes away."""
    if target is not None:
        yield target
        return
    with temporary_folder("sweep") as aside:
        yield aside / "model"


def _named_fields(
    options: Mapping[str, Any], methods: str | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The fields of a request by the name of what it does, which says whether text is read where
    both can be."""
    if methods is None:
        fields = _counted(with_quality(options))
        yield _name(str(options["quality"] or options["method"] or "mean"), fields), fields
        return
    both = (f"{name}{WITH_TEXT}" for name in EITHER_WAY)
    for name in parse_methods(methods, (*METHODS, *QUALITIES, *both)):
        fields = _fields(options, name.removesuffix(WITH_TEXT), reads=name.endswith(WITH_TEXT))
        yield _name(name.removesuffix(WITH_TEXT), fields), fields


def _latent_fields(
    options: Mapping[str, Any], methods: str | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The same of latents, which have the qualities alone; without a method that is fast. Raises
    HeadcountError."""
    if options["pruned_heads"] is not None:
        raise HeadcountError("--prune-heads does not go with latents: leave one of them out")
    of_latents = {**options, "method": None, "grouping": None, "latent": "of the trial"}
    alone = str(options["quality"] or "fast")
    if alone in EITHER_WAY and options["calibration"] is not None:
        alone += WITH_TEXT
    named = alone if methods is None else methods
    known = [name for name in named.split(",") if name.strip().removesuffix(WITH_TEXT) in QUALITIES]
    if not known:
        raise HeadcountError(
            f"latents are fitted by {', '.join(QUALITIES)}: name one of them in --sweep-methods, or"
            " as --quality"
        )
    yield from _named_fields({**of_latents, "quality": None}, ",".join(known))


def _pruned(
    fields: Mapping[str, dict[str, Any]], prunings: str | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each method with each of `prunings`, numbers or shares of query heads; 0: with all of them.
    Raises HeadcountError."""
    for text in [None] if prunings is None else _each(prunings):
        pruned = None if text in (None, "0") else parse_pruned_heads(text)
        for name, own in fields.items():
            label = name if pruned is None else f"{name}, {text} pruned"
            across = own["across_layers"] and pruned is not None
            yield label, {**own, "pruned_heads": pruned, "across_layers": across}


def _each(prunings: str) -> list[str]:
    """Heads that are named are one item, whatever commas are in it."""
    return [prunings] if ":" in prunings else [item.strip() for item in prunings.split(",")]


def _name(method: str, fields: Mapping[str, Any]) -> str:
    reads = fields["calibration"] is not None and method in EITHER_WAY
    return f"{method}{WITH_TEXT}" if reads else method


def _fields(options: Mapping[str, Any], name: str, *, reads: bool) -> dict[str, Any]:
    """The fields of a request by the method or quality `name`, one of several. Its text is left to
    a method that can do without only if it `reads`, or a rung needs it."""
    if reads and options["calibration"] is None:
        raise HeadcountError(
            f"{name}{WITH_TEXT} reads text: add --calibration FILE, or leave {WITH_TEXT} away"
        )
    if name in _BARE:
        bare = {**options, **dict.fromkeys(("quality", *_RUNGS)), "method": name}
        return _counted(with_quality(bare))
    asked = {"quality": name, "method": None} if name in QUALITIES else {"method": name}
    fields = _counted(with_quality({**options, "quality": None, **asked}))
    if reads or Ladder(**{rung: fields[rung] for rung in LADDER}).needs_text:
        return fields
    return {**fields, **dict.fromkeys(_TEXT)}


def _refuse_unused(options: Mapping[str, Any], fields: Mapping[str, Mapping[str, Any]]) -> None:
    """Raises HeadcountError for rungs, or a text, that none of the methods named takes."""
    given = [name for name in _RUNGS if options.get(name) not in (None, False)]
    if given and set(fields) <= {*_BARE}:
        option = f"--{given[0].replace('_', '-')}"
        raise HeadcountError(
            f"{option}: {', '.join(fields)} stand in a sweep without further rungs: name another"
            " method beside them, such as merge or good, or leave it out"
        )
    if options["calibration"] is not None and not any(f["calibration"] for f in fields.values()):
        raise HeadcountError(
            f"--calibration: {', '.join(fields)} read the weights alone in a sweep: name good, or"
            f" {', '.join(f'{name}{WITH_TEXT}' for name in EITHER_WAY if name in fields)}"
        )


def _counted(fields: dict[str, Any]) -> dict[str, Any]:
    """Without the number of K/V heads, which every trial has its own of."""
    return {key: value for key, value in fields.items() if key != "num_key_value_heads"}
