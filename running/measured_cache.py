"""KV-cache bytes: counted in a cache that transformers filled, and predicted by the audit."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from headcount.audit import audit_model
from headcount.model.dtypes import BITS
from headcount.model.errors import HeadcountError

from .generate import cache_argument, generate
from .load import LoadedModel

# What the layers of transformers' caches keep; the last two are dicts of tensors (cache_utils.py).
# Unlimited-OCR's keep all that came before the first step apart from their window.
STATE_ATTRIBUTES = (
    *("keys", "values", "prefill_keys", "prefill_values", "indexer_keys"),
    *("conv_states", "recurrent_states"),
)

PredictCache = Callable[[Path, int, int], int]


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheBytes:
    """Bytes for one sequence of `tokens` tokens; None where they cannot be told."""

    predicted: int | None
    measured: int | None
    tokens: int
    dtype: str


def weigh_cache(
    loaded: LoadedModel, prompt: Tensor, decode: Tensor, predict: PredictCache
) -> tuple[CacheBytes, tuple[str, ...]]:
    """The cache after a prefill of `prompt` and the steps of `decode`, measured and predicted.

    With it come warnings: what could not be told and why, and a prediction that is wrong.
    """
    tokens = prompt.shape[1] + decode.shape[1]
    dtype, measured, warnings = loaded.dtype, None, []
    if cache_argument(loaded.model) is None:
        warnings.append(
            f"{loaded.runnable.id}: the model takes no cache: bytes, speed not measured"
        )
    else:
        _, cache = generate(loaded.model, prompt, decode)
        measured = measured_cache_bytes(cache)
        dtype = cache_dtype(cache) or dtype
    try:
        predicted = predict(loaded.runnable.folder, tokens, BITS[dtype])
    except HeadcountError as error:
        predicted = None
        warnings.append(f"no prediction of cache bytes: {error}")
    if None not in (measured, predicted) and measured != predicted:
        warnings.append(
            f"{loaded.runnable.id}: the audit predicts {predicted:,} cache bytes, the cache holds"
            f" {measured:,}"
        )
    weighed = CacheBytes(predicted=predicted, measured=measured, tokens=tokens, dtype=dtype)
    return weighed, tuple(warnings)


def measured_cache_bytes(cache: Any) -> int:
    """Bytes of all that `cache` keeps: elements of the kept views, whatever storage lies behind."""
    return sum(state.numel() * state.element_size() for state in _states(cache))


def predicted_cache_bytes(folder: Path, tokens: int, bits: int) -> int:
    """What the audit of `folder` says for one sequence. Raises HeadcountError."""
    return audit_model(str(folder)).spec.cache_bytes(tokens=tokens, batch_size=1, bits=bits)


def cache_dtype(cache: Any) -> str | None:
    """The element type of the keys; None for a cache without any."""
    for layer in cache.layers:
        keys = getattr(layer, "keys", None)
        if isinstance(keys, Tensor):
            return str(keys.dtype).removeprefix("torch.")
    return None


def _states(cache: Any) -> Iterator[Tensor]:
    for layer in cache.layers:
        for name in STATE_ATTRIBUTES:
            state = getattr(layer, name, None)
            held = state.values() if isinstance(state, dict) else (state,)
            yield from (tensor for tensor in held if isinstance(tensor, Tensor))
