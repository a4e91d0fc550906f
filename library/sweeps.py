"""`headcount.sweep`: what ever smaller caches cost a model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headcount.convert.merge.ladder import HeadGrouping, Quality, Refit
from headcount.convert.plan.request import ElementType, HomeChoice, Method
from headcount.evaluate.evaluation_request import EvaluationRequest
from headcount.running.extra import need_extra

from .conversions import conversion_options
from .evaluations import evaluation_options
from .result import Result, bars, public
from .values import Name, Size, flag, model_name, number, path
from .values import text as a_text

if TYPE_CHECKING:
    from headcount.evaluate.sweep.sweep import Sweep
    from headcount.evaluate.sweep.trial import Trial

_DEFAULTS = EvaluationRequest(model="")


@dataclass(frozen=True, kw_only=True)
class SweptModel:
    """The original, or a conversion of it, on the text: losses in nats a token, and the cache of
    one sequence of `cache_tokens` tokens. `method` is None of the original, `latent` of what keeps
    keys and values. `calibrated`: text was read. `on_frontier`: no other has as small a cache and
    a smaller KL divergence."""

    num_key_value_heads: int | None
    latent: str | None
    method: str | None
    calibrated: bool
    loss: float
    delta_loss: float
    kl_divergence: float
    top1_agreement: float
    cache_bytes: int
    cache_tokens: int
    on_frontier: bool


@dataclass(frozen=True, kw_only=True)
class SweptLayer:
    """What a layer adds to the loss, in nats a token, when it alone has the fewest heads of the
    sweep, and the shares of keys and values that merging them loses."""

    index: int
    delta_loss: float
    key_error: float
    value_error: float


@dataclass(frozen=True, kw_only=True, eq=False)
class SweepResult(Result):
    """All conversions, measured. With a limit of the loss `chosen` is the smallest cache within it,
    which lies at `target`; both are None where none is, and without a limit. `warnings` are about
    the texts."""

    source: str
    tokens: int
    original: SweptModel
    trials: tuple[SweptModel, ...] = field(repr=False)
    layers: tuple[SweptLayer, ...] = field(repr=False)
    chosen: SweptModel | None
    target: Path | None
    warnings: tuple[str, ...] = field(repr=False)


@public
def sweep(
    source: Name,
    counts: str | Sequence[int | str],
    target: Name | None = None,
    *,
    methods: str | Sequence[str] | None = None,
    max_delta_loss: float | None = None,
    by_layer: bool = False,
    pruned_heads: str | int | None = None,
    across_layers: bool = False,
    quality: Quality | None = None,
    method: Method | None = None,
    grouping: HeadGrouping | None = None,
    temperature: bool | None = None,
    refit: Refit | None = None,
    reconstruct: int | None = None,
    calibration: Name | None = None,
    calibration_tokens: Size | None = None,
    calibration_row_tokens: Size | None = None,
    calibration_device: str | None = None,
    seed: int = 0,
    home: HomeChoice = "auto",
    dtype: ElementType | None = None,
    max_shard_size: Size | None = None,
    allow_pickle: bool = False,
    merge_adapter: bool = False,
    workers: int = 2,
    text: Name | None = None,
    pairs: Name | None = None,
    documents: bool = False,
    max_tokens: Size = _DEFAULTS.max_tokens,
    window: Size | None = None,
    stride: Size | None = None,
    tokenizer: Name | None = None,
    device: str | None = None,
    progress: bool = False,
) -> SweepResult:
    """Converts `source`, a folder or a model of the Hub, to each of `counts` K/V heads ([8, 4], or
    "8,4,latent:1/4,mla:1/4") by each of `methods` (methods and qualities, "fast,good" say),
    evaluates each against it, and keeps none. Needs the extra `convert`.

    With `max_delta_loss`, in nats a token, the smallest cache that adds at most this to the loss,
    and whose KL divergence is at most this, is left at `target`, which must not exist yet.
    `by_layer` also measures each layer alone. `pruned_heads` is a text, of several "0,1/4,1/2"; the
    other arguments of a conversion are those of `convert`, and those of the text those of
    `evaluate`. Raises HeadcountError.
    """
    need_extra("headcount.sweep")
    asked = {
        "pruned_heads": None if pruned_heads is None else str(pruned_heads),
        "across_layers": across_layers,
        **{"num_key_value_heads": None, "latent": None, "cache_budget": None, "overwrite": False},
        **{"quality": quality, "method": method, "grouping": grouping, "refit": refit},
        **{"temperature": temperature, "reconstruct": reconstruct, "calibration": calibration},
        **{"calibration_tokens": calibration_tokens, "max_shard_size": max_shard_size},
        "calibration_row_tokens": calibration_row_tokens,
        "calibration_device": calibration_device,
        **{"seed": seed, "home": home, "dtype": dtype, "workers": workers, "format": "safetensors"},
    }
    sizes = {"max_tokens": max_tokens, "window": window, "stride": stride}
    on = {"text": text, "pairs": pairs, "documents": documents}
    on |= {"tokenizer": tokenizer, "device": device}
    with bars(progress):
        return _swept(
            model_name(source),
            None if target is None else path("target", target),
            conversion_options(asked),
            evaluation_options({**on, **sizes}),
            counts=_listed("counts", counts),
            methods=None if methods is None else _listed("methods", methods),
            budget=None if max_delta_loss is None else number("max_delta_loss", max_delta_loss),
            by_layer=flag("by_layer", by_layer),
            allow_pickle=allow_pickle,
            merge_adapter=merge_adapter,
        )


def _listed(name: str, value: object) -> str:
    """As the command line takes it. Raises HeadcountError."""
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        value = ",".join(map(str, value))
    return a_text(name, value)


def _swept(
    source: str,
    target: Path | None,
    options: Mapping[str, Any],
    evaluation: Mapping[str, Any],
    *,
    budget: float | None,
    by_layer: bool,
    **grid: Any,
) -> SweepResult:
    from headcount.evaluate.sweep.sweep import sweep as sweep_of
    from headcount.evaluate.sweep.sweep_report import sweep_report

    from .sweep_trials import sweep_trials

    with sweep_trials(
        source, target, options, evaluation, budget=budget, by_layer=by_layer, **grid
    ) as trials:
        done = sweep_of(trials, evaluation, budget=budget, progress=True)
        if by_layer:
            done = with_layers(done, trials, evaluation, progress=True)
    report = sweep_report(done)
    document: Mapping[str, Any] = report.document
    return SweepResult(
        report=report,
        source=document["source"],
        tokens=document["tokens"],
        original=_model(document["original"]),
        trials=tuple(map(_model, document["trials"])),
        layers=tuple(map(_layer, document["layers"])),
        chosen=None if document["chosen"] is None else _model(document["chosen"]),
        target=None if document["chosen"] is None else target,
        warnings=done.warnings,
    )


def with_layers(
    done: "Sweep", trials: "Sequence[Trial]", evaluation: Mapping[str, Any], *, progress: bool
) -> "Sweep":
    """The sweep, and what each layer alone adds to the loss. Raises HeadcountError."""
    from headcount.evaluate.sweep.sensitivity import sensitivities

    fewest = [trial for trial in trials if trial.latent is None][-1]
    layers = sensitivities(fewest.plan.request, evaluation, progress=progress)
    fewest.plan.source.check()
    return replace(done, layers=layers)


def _model(document: Mapping[str, Any]) -> SweptModel:
    names = SweptModel.__dataclass_fields__.keys() - {"on_frontier"}
    on_frontier = bool(document.get("frontier"))
    return SweptModel(**{name: document[name] for name in names}, on_frontier=on_frontier)


def _layer(document: Mapping[str, Any]) -> SweptLayer:
    lost = document["relative_error"]
    named = {name: document[name] for name in ("index", "delta_loss")}
    return SweptLayer(**named, key_error=lost["k"], value_error=lost["v"])
