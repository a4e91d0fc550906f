"""How neighbouring K/V heads become one: pure functions on [heads, rows, ...] tensors.

Runs of heads are given by their sizes, or by one number where all are alike.

Formulas and sources: docs/methods.md. Sums run in a fixed order, in float64 for float32 and
float64 input and in float32 for 16-bit input (float64 if that could overflow), and are rounded
once: heads that agree give themselves, bit for bit.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch

_WIDE = {
    torch.float64: torch.float64,
    torch.float32: torch.float64,
    torch.bfloat16: torch.float32,
    torch.float16: torch.float32,
}
Runs = int | Sequence[int]
# Sums of fewer than 2^28 bfloat16 numbers up to this do not overflow float32.
_LARGE_BFLOAT16 = 2.0**100
# Differences and norms of float64 numbers up to this do not overflow float64.
_LARGE_FLOAT64 = 2.0**960


class NotFiniteError(ValueError):
    """NaN or infinity in a head, or in the rounded result. The caller knows the tensor's name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pooled:
    """`heads` [runs, rows, ...]; the norm of all members' distances to their new heads, and the
    norm of all members. Frobenius norms."""

    heads: torch.Tensor
    distance: float
    norm: float


def pool_heads(heads: torch.Tensor, runs: Runs, chosen: Sequence[int] | None) -> Pooled:
    """The members of run j become head j: their mean, or the head `chosen[j]`.

    Two heads are held wide, so memory is that of `heads` and the result. Raises NotFiniteError,
    also for an overflow, which only means of float64 can have.
    """
    if chosen is not None and (scaled := _scaled_down(heads)) is not heads:
        # What is chosen needs no sum: only the distances have to be measured smaller.
        return replace(pool_heads(scaled, runs, chosen), heads=heads[list(chosen)])
    groups = _split(heads, runs)
    result = heads.new_empty((len(groups), *heads.shape[1:]))
    center, wide = _wide_like(heads), _wide_like(heads)
    distance = norm = 0.0
    start = 0
    for index, group in enumerate(groups):
        for member in group:
            norm = math.hypot(norm, finite_norm(wide.copy_(member), "holds NaN or infinity"))
        if chosen is None:
            result[index] = mean_head(group, out=center)
        else:
            result[index] = group[chosen[index] - start]
        center.copy_(result[index])
        for member in group:
            away = wide.copy_(member).sub_(center)
            distance = math.hypot(distance, finite_norm(away, _overflow(heads)))
        start += len(group)
    return Pooled(heads=result, distance=distance, norm=norm)


def mean_head(members: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    """The mean over the first axis into `out`, a wide head; summed from the first to the last.

    Equal members give themselves. A wider sum does that by rounding; float64 has none, and three
    times a number may lose its last bit.
    """
    out.copy_(members[0])
    if members.dtype == out.dtype and all(torch.equal(members[0], m) for m in members[1:]):
        return out
    for member in members[1:]:
        out.add_(member)
    return out.div_(len(members))


def finite_norm(head: torch.Tensor, problem: str) -> float:
    """The Frobenius norm. Raises NotFiniteError for NaN and infinity; a norm whose square is too
    large for the dtype is no problem."""
    norm = float(torch.linalg.vector_norm(head))
    if math.isfinite(norm):
        return norm
    peak = float(head.abs().max())
    if not math.isfinite(peak):
        raise NotFiniteError(problem)
    return peak * float(torch.linalg.vector_norm(head / peak))


def _wide_like(heads: torch.Tensor) -> torch.Tensor:
    """Room for one head in the dtype that sums are made in."""
    large = heads.dtype == torch.bfloat16 and _peak(heads) > _LARGE_BFLOAT16
    return torch.empty(heads.shape[1:], dtype=torch.float64 if large else _WIDE[heads.dtype])


def _scaled_down(heads: torch.Tensor) -> torch.Tensor:
    """`heads`, or 2^-100 of them if their distances would overflow: ratios stay as they are."""
    if heads.dtype == torch.float64 and _LARGE_FLOAT64 < _peak(heads) < math.inf:
        return heads * 2.0**-100
    return heads


def _peak(heads: torch.Tensor) -> float:
    """The largest absolute value; NaN if there is one."""
    low, high = heads.aminmax()
    return max(-float(low), float(high))


def _overflow(heads: torch.Tensor) -> str:
    return f"has a mean that overflows {str(heads.dtype).removeprefix('torch.')}"


def first_heads(runs: Sequence[int]) -> tuple[int, ...]:
    """The first member of every run."""
    return tuple(accumulate(runs[:-1], initial=0))


def random_heads(runs: Sequence[int], *, seed: int, layer: int) -> tuple[int, ...]:
    """One member of every run, drawn from a hash of seed, layer and run."""
    return tuple(
        start + _draw(f"{seed}/{layer}/{index}") % members
        for index, (start, members) in enumerate(zip(first_heads(runs), runs, strict=True))
    )


def _draw(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")


def central_heads(shares: Sequence[Sequence[torch.Tensor]]) -> tuple[int, ...]:
    """Of every run, the member with the least total squared distance to the others, summed
    over `shares`: what `spread` gives of K, and of V.

    That is the one nearest to the mean: sum_b |a - b|^2 = m |a - mean|^2 + a constant. K and V
    decide together, each distance as a share of the run's sum, so that a K never meets another
    head's V. Of equals the first.
    """
    chosen, start = [], 0
    for run in zip(*shares, strict=True):
        # Rounded, so that the last bits of a sum do not choose between equals: the first is taken.
        total = torch.stack(run).sum(dim=0).round(decimals=9)
        chosen.append(start + int(total.argmin()))
        start += len(total)
    return tuple(chosen)


def spread(heads: torch.Tensor, runs: Runs) -> list[torch.Tensor]:
    """For each run [members]: squared distance to the run's mean over the run's sum of them.

    Raises NotFiniteError for NaN and infinity.
    """
    heads = _scaled_down(heads)
    center, wide = _wide_like(heads), _wide_like(heads)
    shares = []
    for group in _split(heads, runs):
        mean_head(group, out=center)
        finite_norm(center, "holds NaN or infinity")
        row = [finite_norm(wide.copy_(m).sub_(center), _overflow(heads)) for m in group]
        distances = torch.tensor(row, dtype=torch.float64)
        largest = distances.amax().clamp_min(torch.finfo(torch.float64).tiny)
        squares = (distances / largest).square()
        shares.append(squares / squares.sum().clamp_min(1))
    return shares


def _split(heads: torch.Tensor, runs: Runs) -> tuple[torch.Tensor, ...]:
    """The heads of each run. A number of members must divide the heads."""
    return tuple(heads.split(runs if isinstance(runs, int) else list(runs)))
