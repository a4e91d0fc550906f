"""A layer whose attention keeps a latent, as it is written and recorded."""

from collections.abc import Mapping
from typing import Any

import torch

from ..attention_map.attention_tensors import AttentionTensors
from ..rewrite.layer import RewrittenLayer
from .factors import Factors
from .names import factor_tensors, key_value_tensors

# The key of what was measured of a latent among that of a layer.
LATENT = "latent"


def made_layer(
    tensors: AttentionTensors,
    factors: Factors,
    others: Mapping[str, torch.Tensor] | None = None,
    measured: Mapping[str, Any] | None = None,
) -> RewrittenLayer:
    """The layer with `factors`, and what else was fitted: `others` by their names in the output,
    `measured` for the record."""
    return RewrittenLayer(
        index=tensors.where[0],
        tensors={**factor_tensors(tensors, factors), **(others or {})},
        measured={LATENT: latent_document(factors), **(measured or {})},
        made_of=tuple(held.tensor.name for held in key_value_tensors(tensors)),
    )


def latent_document(factors: Factors) -> dict[str, Any]:
    """JSON-ready: the rank, and the shares of both objectives that are lost, to four digits: sums
    differ between processors."""
    errors = {name: getattr(factors, name) for name in ("key_error", "value_error")}
    return {"rank": factors.rank, **{name: float(f"{e:.4g}") for name, e in errors.items()}}
