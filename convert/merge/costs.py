"""What it costs to let sets of K/V heads become one head, many sets at a time."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from .attention import AttentionWeights, Freedom, Moments
from .blocks import Block
from .keys import key_blocks
from .shared import square_roots, weighed
from .values import value_block

_AT_ONCE = 2**22  # elements of the matrices whose eigenvalues are found together: 64 MiB


@dataclass(frozen=True, kw_only=True, slots=True)
class _Part:
    """One block of the objective; `mapped`: its heads may be mapped back after they are shared."""

    roots: torch.Tensor
    covariance: torch.Tensor
    share: float
    mapped: bool

    def lost(self, sets: torch.Tensor) -> torch.Tensor:
        """[n]: the share of the objective that each of `sets` [n, m] loses."""
        frequencies, rank = self.covariance.shape[0], self.roots.shape[-1]
        step = max(1, _AT_ONCE // (frequencies * (sets.shape[1] * rank) ** 2))
        return torch.cat([self._lost(some) for some in sets.split(step)]) * self.share

    def _lost(self, sets: torch.Tensor) -> torch.Tensor:
        rank = self.roots.shape[-1]
        rows = (sets[..., None] * rank + torch.arange(rank, device=sets.device)).flatten(1)
        inner = self.covariance[:, rows[:, :, None], rows[:, None, :]]
        product = weighed(inner, self.roots[:, sets])
        if self.mapped:
            values: torch.Tensor = torch.linalg.eigvalsh(product)
            return values[..., :-rank].clamp_min(0).sum((0, -1))
        # The weighted mean of rows by themselves: its direction is that of their weights.
        read = self.roots[:, sets].diagonal(dim1=-2, dim2=-1)[..., 0]
        along = (read[..., None, :] @ product @ read[..., :, None].conj())[..., 0, 0].real
        total = product.diagonal(dim1=-2, dim2=-1).real.sum(-1)
        return (total - along / read.abs().square().sum(-1).clamp_min(1e-300)).sum(0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """cost(S) = the share of the scores' objective and of the outputs' that S loses when its heads
    are merged; heads need be no neighbours. The parts are those that `merge` minimises."""

    parts: Sequence[_Part]

    def of(self, sets: torch.Tensor) -> torch.Tensor:
        """[n] for sets [n, m] of K/V heads, all of one size."""
        if sets.shape[1] == 1:
            return torch.zeros(len(sets), dtype=torch.float64, device=sets.device)
        return torch.stack([part.lost(sets) for part in self.parts]).sum(0)

    def work(self, sets: int, size: int) -> int:
        """About how many multiplications `of` takes."""
        each = sum(
            part.covariance.shape[0] * (size * part.roots.shape[-1] + 8) ** 3 for part in self.parts
        )
        return sets * each


def costs_of(weights: AttentionWeights, freedom: Freedom, moments: Moments) -> Costs:
    """Of all K/V heads of an attention."""
    queries = moments.queries.double().unflatten(0, (-1, weights.group_size)).sum(1)
    keys, _ = key_blocks(queries, moments.keys.double(), moments.key_mean.double(), freedom)
    values = moments.values.double()
    mean = moments.value_mean
    if mean is not None and freedom.output_bias and freedom.values and weights.o_bias is not None:
        values = values - torch.outer(mean.double(), mean.double())
    outputs = weights.o.double()
    value = value_block(outputs.mT @ outputs, values)
    return Costs(parts=[*_parts(keys, freedom.keys), *_parts([value], freedom.values)])


def _parts(blocks: Sequence[Block], mapped: bool) -> list[_Part]:
    energy = sum(block.energy for block in blocks)
    if energy <= 0:
        return []
    return [_part(block, block.counts / energy, mapped) for block in blocks]


def _part(block: Block, share: float, mapped: bool) -> _Part:
    weight, covariance = block.weight, block.covariance
    if not mapped and weight.shape[-1] > 1:  # every row by itself
        members = weight.shape[-3]
        weight = weight[0].diagonal(dim1=-2, dim2=-1).T[..., None, None]
        spread = covariance[0].unflatten(0, (members, -1)).unflatten(-1, (members, -1))
        covariance = spread.diagonal(dim1=1, dim2=3).movedim(-1, 0).contiguous()
    return _Part(roots=square_roots(weight), covariance=covariance, share=share, mapped=mapped)
