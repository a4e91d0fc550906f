"""How positions turn queries and keys: key-values, and tables of factors.

Which formula stretches a rotation: rope_freqs and rope_factors of llama.cpp's graphs, and
`modeling_rope_utils` of transformers.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..plan.errors import CannotConvertError
from .gguf_file import GgufTensor, KeyValue

_FULL, _SLIDING = "full_attention", "sliding_attention"
_PLAIN = ("default", None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rotation:
    """The rotation of a model: `parameters` as transformers' config has them, those of layers with
    a window where they have their own, `rotated` elements of each head, `context` tokens."""

    parameters: Mapping[str, Any]
    sliding: Mapping[str, Any] | None
    rotated: int
    context: int
    label: str

    @property
    def kind(self) -> str | None:
        """The name of the formula."""
        return self.parameters.get("rope_type")


def rotation_of(config: Any, head_dim: int, context: int, label: str) -> Rotation | None:
    """The rotation that a config of transformers says; None where nothing turns."""
    both = getattr(config, "rope_parameters", None)
    if not both:
        return None
    own = _FULL in both or _SLIDING in both
    parameters = both.get(_FULL, both) if own else both
    share = parameters.get("partial_rotary_factor") or 1.0
    return Rotation(
        parameters=parameters,
        sliding=both.get(_SLIDING) if own else None,
        rotated=int(head_dim * share),
        context=context,
        label=label,
    )


def rotation_keys(rotation: Rotation) -> Iterator[KeyValue]:
    """The keys behind the architecture's name. Raises CannotConvertError."""
    yield KeyValue("rope.dimension_count", "u32", rotation.rotated)
    yield KeyValue("rope.freq_base", "f32", float(rotation.parameters["rope_theta"]))
    if rotation.sliding is not None:
        if rotation.sliding.get("rope_type") not in _PLAIN:
            raise _unknown(rotation, str(rotation.sliding.get("rope_type")))
        yield KeyValue("rope.freq_base_swa", "f32", float(rotation.sliding["rope_theta"]))
    if rotation.kind in ("linear", "yarn"):
        yield KeyValue("rope.scaling.type", "str", rotation.kind)
        yield KeyValue("rope.scaling.factor", "f32", float(rotation.parameters["factor"]))
    if rotation.kind == "yarn":
        yield from _yarn(rotation)
    elif rotation.kind == "longrope":
        yield KeyValue("rope.scaling.type", "str", "longrope")
        yield KeyValue("rope.scaling.attn_factor", "f32", _attention_factor(rotation))
    elif rotation.kind not in (*_PLAIN, "linear", "llama3"):
        raise _unknown(rotation, str(rotation.kind))


def rotation_tensors(rotation: Rotation) -> Iterator[GgufTensor]:
    """Tables of factors that frequencies are divided by, [rotated / 2]."""
    if rotation.kind == "llama3":
        yield _table("rope_freqs", _llama3_factors(rotation))
    elif rotation.kind == "longrope":
        yield _table("rope_factors_long", rotation.parameters["long_factor"])
        yield _table("rope_factors_short", rotation.parameters["short_factor"])


def _table(name: str, values: Any) -> GgufTensor:
    numbers = tuple(float(value) for value in values)
    return GgufTensor(name=f"{name}.weight", type="F32", shape=(len(numbers),), values=numbers)


def _original_context(rotation: Rotation) -> int:
    return int(rotation.parameters.get("original_max_position_embeddings") or rotation.context)


def _yarn(rotation: Rotation) -> Iterator[KeyValue]:
    given = rotation.parameters
    if any(given.get(key) is not None for key in ("mscale", "mscale_all_dim")):
        raise _unknown(rotation, "yarn with mscale")
    if given.get("truncate") is False:
        raise _unknown(rotation, "yarn with truncate=false")
    yield KeyValue("rope.scaling.original_context_length", "u32", _original_context(rotation))
    if given.get("attention_factor") is not None:
        # llama.cpp's own factor is 0.1 ln(factor) + 1, and multiplies what the file says
        own = 0.1 * math.log(given["factor"]) + 1.0
        yield KeyValue("rope.scaling.attn_factor", "f32", given["attention_factor"] / own)
    yield KeyValue("rope.scaling.yarn_beta_fast", "f32", float(given.get("beta_fast") or 32))
    yield KeyValue("rope.scaling.yarn_beta_slow", "f32", float(given.get("beta_slow") or 1))


def _attention_factor(rotation: Rotation) -> float:
    """What longrope multiplies queries and keys by: sqrt(1 + ln(s) / ln(original)) for a context s
    times the original one."""
    given, original = rotation.parameters, _original_context(rotation)
    if given.get("attention_factor") is not None:
        return float(given["attention_factor"])
    scale = given.get("factor") or rotation.context / original
    return math.sqrt(1 + math.log(scale) / math.log(original)) if scale > 1 else 1.0


def _llama3_factors(rotation: Rotation) -> list[float]:
    """What Llama 3.1 divides each frequency by: nothing for short waves, `factor` for long ones,
    and between them a mixture of both."""
    given = rotation.parameters
    original, factor = given["original_max_position_embeddings"], given["factor"]
    low, high = given["low_freq_factor"], given["high_freq_factor"]
    factors = []
    for i in range(0, rotation.rotated, 2):
        wavelength = 2 * math.pi * given["rope_theta"] ** (i / rotation.rotated)
        turns = original / wavelength
        smooth = min(max((turns - low) / (high - low), 0.0), 1.0)
        factors.append(1 / ((1 - smooth) / factor + smooth))
    return factors


def _unknown(rotation: Rotation, what: str) -> CannotConvertError:
    return CannotConvertError(
        f"{rotation.label}: llama.cpp has no rotation of the kind {what!r} (rope_parameters);"
        " convert without --format gguf"
    )
