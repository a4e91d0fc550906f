"""The importance of a model's heads, as a value, and how it is measured."""

import time
from dataclasses import dataclass
from pathlib import Path

import torch

from headcount.convert.importance.by_text import (
    ScoredText,
    exact_importance,
    importance_by_text,
)
from headcount.convert.importance.head_importance import HeadImportance
from headcount.convert.plan.source import ConversionSource, read_source
from headcount.model.errors import HeadcountError, UnsupportedModelError
from headcount.running.placement import AUTO, resolve_device
from headcount.running.progress import progress_bar

from .importance_request import ImportanceRequest
from .rank_correlation import spearman


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerImportance:
    """Of each head of one layer, in nats a token: the estimate of what it costs to put
    its mean over the text in place of what it gives, and what that costs, if it was asked for."""

    layer: int
    num_key_value_heads: int
    estimate: tuple[float, ...]
    exact: tuple[float, ...] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelImportance:
    """All layers with attention. `tokens` of the text with digest `sha256` were read; `correlation`
    is Spearman's of estimate and exact cost over all heads, None without the latter."""

    id: str
    model_type: str
    text: str
    sha256: str
    tokens: int
    seed: int
    seconds: float
    layers: tuple[LayerImportance, ...]
    correlation: float | None

    @property
    def is_exact(self) -> bool:
        return any(layer.exact is not None for layer in self.layers)


def measure_importance(
    request: ImportanceRequest, folder: Path, name: str, *, progress: bool = False
) -> ModelImportance:
    """That of the model in `folder`, which reports call `name`. `progress`: a bar on stderr for
    what is exact, if that is a terminal. Raises HeadcountError."""
    start = time.perf_counter()
    source = read_source(folder)
    device = _device(request.device)
    text = ScoredText(
        name=request.text,
        tokens=request.max_tokens,
        seed=request.seed,
        option="--text",
        device=device,
        less_memory=_less_memory(request, device.type),
    )
    try:
        exact, estimate = _measured(source, text, exact=request.exact, progress=progress)
    except UnsupportedModelError as error:
        raise UnsupportedModelError(
            f"{name}: the importance of its heads cannot be told: only that of decoders can, whose"
            " layers run one by one on hidden states alone"
        ) from error
    assert estimate.sha256 is not None
    return ModelImportance(
        id=name,
        model_type=source.model_type,
        text=request.text,
        sha256=estimate.sha256,
        tokens=estimate.tokens,
        seed=request.seed,
        seconds=time.perf_counter() - start,
        layers=_layers(source, exact, estimate),
        correlation=None if exact is None else spearman(_flat(exact), _flat(estimate)),
    )


def _device(name: str | None) -> torch.device:
    if name == AUTO:
        raise HeadcountError(
            "--torch-device auto: layers run one by one for --importance, on one device; use cuda"
            " or cpu"
        )
    return resolve_device(name)


def _less_memory(request: ImportanceRequest, device: str) -> str:
    where = "a machine with more memory" if device == "cpu" else "--torch-device cpu"
    return f"{where}, or without --exact" if request.exact else where


def _measured(
    source: ConversionSource, text: ScoredText, *, exact: bool, progress: bool
) -> tuple[HeadImportance | None, HeadImportance]:
    if not exact:
        return None, importance_by_text(source, text, ablated_to_mean=True)
    mixers = source.attention_map.mixers.values()
    heads = sum(mixer.num_attention_heads for mixer in mixers)
    with progress_bar(None, "ablating", "head", shown=progress, total=heads) as bar:
        return exact_importance(source, text, ablated_to_mean=True, tell=bar.update)


def _layers(
    source: ConversionSource, exact: HeadImportance | None, estimate: HeadImportance
) -> tuple[LayerImportance, ...]:
    mixers = {index: mixer for (index, _), mixer in source.attention_map.mixers.items()}
    return tuple(
        LayerImportance(
            layer=index,
            num_key_value_heads=mixers[index].num_key_value_heads,
            estimate=tuple(estimate.scores[index]),
            exact=None if exact is None else tuple(exact.scores[index]),
        )
        for index in sorted(estimate.scores)
    )


def _flat(found: HeadImportance) -> list[float]:
    return [score for index in sorted(found.scores) for score in found.scores[index]]
