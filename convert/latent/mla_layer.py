"""The tensors of an attention of DeepSeek's class (MLA), made of a decoupled one.

The class norms the latent before it is kept: c / sqrt(mean(c^2) + 1e-6), times a weight. A latent
that is so small that its mean square is nothing beside 1e-6 is divided by 1e-3 whatever it is, so
that the norm does no more than scale it. The projection down makes it that small, by a power of
two, and the norm's weight, another one, takes it back.
"""

import math
from collections.abc import Mapping

import torch

from ..attention_map.attention_tensors import AttentionTensors
from ..rewrite.layer import RewrittenLayer
from .decoupled import Decoupled
from .made_layer import LATENT, latent_document
from .mla_names import DOWN, NORM, UP, attention_path
from .mla_shape import NORM_EPSILON, MlaShape

# What the mean square of the small latent may be of NORM_EPSILON: its root is a rounding error.
_NOTHING = 2.0**-46


def mla_layer(
    tensors: AttentionTensors, made: Decoupled, shape: MlaShape, small: float
) -> RewrittenLayer:
    """The layer of an attention that nothing was fitted to."""
    factors = made.factors
    found = mla_tensors(
        made.query, made.rotated, factors.down, factors.key, factors.value, shape, small
    )
    prefix = attention_path(tensors)
    return RewrittenLayer(
        index=tensors.where[0],
        tensors={f"{prefix}{name}": value.contiguous() for name, value in found.items()},
        measured={LATENT: mla_document(made)},
        made_of=read_names(tensors),
    )


def mla_document(made: Decoupled) -> dict[str, object]:
    """JSON-ready, with the share of the keys that loses its rotation."""
    error = float(f"{max(0.0, made.rotated_error):.4g}")
    return {**latent_document(made.factors), "rotated_error": error}


def read_names(tensors: AttentionTensors) -> tuple[str, ...]:
    """The tensors of the source that those of the output are made of."""
    return tuple(h.tensor.name for h in tensors.projections if h.has_query_key_value)


def mla_tensors(
    query: torch.Tensor,
    rotated: torch.Tensor,
    down: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    shape: MlaShape,
    small: float,
) -> Mapping[str, torch.Tensor]:
    """By their paths in the attention: `query` [H, d + R, E], `rotated` [R, E], `down` [r, E],
    `key` [G, d, r] and `value` [G, dv, r]. `small`: see `small_scale`. Differentiable."""
    restoring = 2.0 ** math.floor(math.log2(NORM_EPSILON**0.5 / small))
    up = torch.cat([key, value], 1) * (NORM_EPSILON**0.5 / (small * restoring))
    up = up.repeat_interleave(len(query) // len(key), 0)
    return {
        "q_proj.weight": query.flatten(0, 1) * shape.query_scale,
        f"{DOWN}.weight": torch.cat([down * small, rotated]),
        f"{NORM}.weight": down.new_full((len(down),), restoring),
        f"{UP}.weight": up.flatten(0, 1),
    }


def small_scale(down: torch.Tensor, inputs: torch.Tensor) -> float:
    """The power of two that makes latents of `down` [r, E] nothing to the norm, for inputs with the
    second moment `inputs` [E, E]."""
    wide = down.double()
    square = float(((wide @ inputs.double()) * wide).sum()) / len(down)
    return 2.0 ** math.floor(math.log2((NORM_EPSILON * _NOTHING / (square or 1.0)) ** 0.5))
