"""What a rung of the ladder makes of one layer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..merge.attention_weights import Merged


@dataclass(frozen=True, kw_only=True, slots=True)
class RewrittenLayer:
    """The tensors of layer `index` that change, by their names in the source's files, of the
    source's shapes, in float32 (float64 where the source is); `measured` is JSON-ready and goes
    into the record. K/V heads that are to become one are equal in them.

    Under `attention` and `cross_attention`, `measured` has the `merged_document` of each that was
    merged, under `calibration` and `cross_calibration` how each was fitted to text; under INPUTS,
    where no text was given, how it is known what the layer reads. `made_of` names the source's
    tensors that others were made of, of other names or shapes.
    """

    index: int
    tensors: Mapping[str, torch.Tensor]
    measured: Mapping[str, Any]
    made_of: tuple[str, ...] = ()


# The key of `measured` for how it is known what a layer reads.
INPUTS = "inputs"
# The layer of an index that an earlier run made; None: it is still to be made.
MadeBefore = Callable[[int], RewrittenLayer | None]


def merged_document(merged: Merged) -> dict[str, Any]:
    """JSON-ready: the new order of the source's K/V heads, the sizes of the groups, and the shares
    of the objective that are lost, to four digits: sums differ between processors."""
    errors = ("key_error", "value_error", "key_mean_error", "value_mean_error")
    return {
        "order": list(merged.order),
        "groups": list(merged.groups),
        **{name: float(f"{max(0.0, getattr(merged, name)):.4g}") for name in errors},
    }


def attention_key(cross: bool) -> str:
    """The key of `measured` for one of a layer's attentions."""
    return "cross_attention" if cross else "attention"


def calibration_key(cross: bool) -> str:
    """The key of `measured` for what fitting one of a layer's attentions to text did."""
    return "cross_calibration" if cross else "calibration"


def merged_documents(measured: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """The documents of a layer's attentions that were merged."""
    keys = (attention_key(cross) for cross in (False, True))
    return tuple(measured[key] for key in keys if key in measured)
