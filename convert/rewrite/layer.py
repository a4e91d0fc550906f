"""What a rung of the ladder makes of one layer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, kw_only=True, slots=True)
class RewrittenLayer:
    """The tensors of layer `index` that change, by their names in the source's files, of the
    source's shapes, in float32 (float64 where the source is); `measured` is JSON-ready and goes
    into the record. K/V heads that are to become one are equal in them."""

    index: int
    tensors: Mapping[str, torch.Tensor]
    measured: Mapping[str, Any]
