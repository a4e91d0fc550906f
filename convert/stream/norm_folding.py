"""The affine part of a norm, folded into the projection that reads it: W(gamma x + beta) + b; and a
factor of all of a tensor.

Sums are made in float64 and rounded once, a slice of rows at a time: no large matrix is ever
held wide.
"""

from collections.abc import Iterator

import torch

# Elements that are held in float64 at once: 32 MiB.
_SLICE = 4 * 2**20


def fold_gain(weight: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    """[out, in] with column i times gain[i]: the projection of gain * x."""
    folded = torch.empty_like(weight)
    for rows in _slices(weight):
        folded[rows] = (weight[rows].double() * gain.double()).to(weight.dtype)
    return folded


def fold_shift(
    weight: torch.Tensor, shift: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """[out]: the bias of the projection once it reads x where it read x + shift."""
    folded = torch.empty(len(weight), dtype=weight.dtype)
    for rows in _slices(weight):
        moved = weight[rows].double() @ shift.double()
        folded[rows] = (moved if bias is None else moved + bias[rows].double()).to(weight.dtype)
    return folded


def scaled(tensor: torch.Tensor, factor: float) -> torch.Tensor:
    """`tensor` times a number."""
    made = torch.empty_like(tensor)
    for rows in _slices(tensor.unsqueeze(-1) if tensor.dim() == 1 else tensor):
        made[rows] = (tensor[rows].double() * factor).to(tensor.dtype)
    return made


def _slices(weight: torch.Tensor) -> Iterator[slice]:
    step = max(1, _SLICE // weight.shape[1])
    return (slice(start, start + step) for start in range(0, len(weight), step))
