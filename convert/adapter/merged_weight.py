"""The sum of a weight and what an adapter adds to it."""

import torch

from ..stream.pooling import NotFiniteError

# Elements that are held in float64 at once: 32 MiB.
_SLICE = 4 * 2**20


def merged_weight(
    weight: torch.Tensor,
    down: torch.Tensor,
    up: torch.Tensor,
    *,
    scaling: float,
    transposed: bool,
) -> torch.Tensor:
    """weight + scaling * up @ down, or its transpose: in float64, rounded once to the weight's
    type, some rows at a time. `down` is [rank, in], `up` [out, rank]. Raises NotFiniteError."""
    left, right = (down.T, up.T) if transposed else (up, down)
    left, right = left.double(), right.double()
    result = torch.empty_like(weight)
    step = max(1, _SLICE // max(1, weight.shape[1]))
    for start in range(0, len(weight), step):
        rows = slice(start, start + step)
        result[rows] = (weight[rows].double() + scaling * (left[rows] @ right)).to(weight.dtype)
    if not result.isfinite().all():
        raise NotFiniteError("holds NaN or infinity once the adapter is added")
    return result
