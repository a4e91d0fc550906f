"""What it costs to let sets of K/V heads become one head, many sets at a time."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from .attention_weights import AttentionWeights, Moments
from .freedom import Freedom
from .row_blocks import RowBlock
from .shared_head import square_roots
from .shared_keys import key_blocks
from .shared_values import value_block

_AT_ONCE = 2**22  # elements of the matrices whose eigenvalues are found together: 32 MiB
# From so many rows on eigenvalues are found in float32, in some half of the time. A set that loses
# less than this share of what it has is looked at again: there rounding (1e-6) might count.
_WIDE, _ROUNDED = 128, 1e-3


@dataclass(frozen=True, kw_only=True, slots=True)
class _Part:
    """One block of the objective: `products` [G, G, F, r, r] are those of weight^1/2 C weight^1/2
    for each two heads, as a share of the whole; `read` [F, G] the roots of weights of one row.
    `mapped`: its heads may be mapped back after they are shared."""

    products: torch.Tensor
    read: torch.Tensor
    mapped: bool

    @property
    def frequencies(self) -> int:
        return self.products.shape[2]

    @property
    def rank(self) -> int:
        return self.products.shape[-1]

    def lost(self, sets: torch.Tensor) -> torch.Tensor:
        """[n]: the share of the objective that each of `sets` [n, m] loses."""
        width = sets.shape[1] * self.rank
        step = max(1, _AT_ONCE // (self.frequencies * width**2))
        find = self._tail if self.mapped else self._off_the_mean
        if self.mapped and width >= _WIDE:
            find = self._quick_tail
        return torch.cat([find(some) for some in sets.split(step)])

    def _of(self, sets: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
        """[F, n, m*r, m*r]: the product of each set."""
        blocks = self.products[sets[:, :, None], sets[:, None, :]].to(dtype)
        return blocks.permute(3, 0, 1, 4, 2, 5).flatten(-2).flatten(-3, -2)

    def _tail(self, sets: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
        """All eigenvalues but the `rank` largest, summed."""
        values: torch.Tensor = torch.linalg.eigvalsh(self._of(sets, dtype))
        return values[..., : -self.rank].double().clamp_min(0).sum((0, -1))

    def _quick_tail(self, sets: torch.Tensor) -> torch.Tensor:
        found = self._tail(sets, torch.complex64 if self.products.is_complex() else torch.float32)
        own = self.products.diagonal().diagonal(dim1=1, dim2=2).real.sum((0, 2))
        close = found < _ROUNDED * own[sets].sum(-1)
        if bool(close.any()):
            found[close] = self._tail(sets[close])
        return found

    def _off_the_mean(self, sets: torch.Tensor) -> torch.Tensor:
        """What the weighted mean of rows by themselves loses: its direction is that of `read`."""
        product, read = self._of(sets), self.read[:, sets]
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
        if sets.shape[1] == 1 or not self.parts:  # there is nothing that could be lost
            return torch.zeros(len(sets), dtype=torch.float64, device=sets.device)
        return torch.stack([part.lost(sets) for part in self.parts]).sum(0)

    def work(self, sets: int, size: int) -> int:
        """About how many multiplications `of` takes."""
        each = sum(part.frequencies * (size * part.rank + 8) ** 3 for part in self.parts)
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


def _parts(blocks: Sequence[RowBlock], mapped: bool) -> list[_Part]:
    energy = sum(block.energy for block in blocks)
    if energy <= 0:
        return []
    return [_part(block, block.counts / energy, mapped) for block in blocks]


def _part(block: RowBlock, share: float, mapped: bool) -> _Part:
    weight, covariance = block.weight, block.covariance
    if not mapped and weight.shape[-1] > 1:  # every row by itself
        members = weight.shape[-3]
        weight = weight[0].diagonal(dim1=-2, dim2=-1).T[..., None, None]
        spread = covariance[0].unflatten(0, (members, -1)).unflatten(-1, (members, -1))
        covariance = spread.diagonal(dim1=1, dim2=3).movedim(-1, 0)
    roots = square_roots(weight)
    return _Part(
        products=_weighed(covariance, roots * share**0.5),
        read=roots[..., 0, 0],
        mapped=mapped,
    )


def _weighed(covariance: torch.Tensor, roots: torch.Tensor) -> torch.Tensor:
    """[G, G, F, r, r]: roots_g C_gh roots_h, from the `roots` [F, G, r, r] of all heads."""
    count, rank = roots.shape[1:3]
    spread = covariance.unflatten(1, (count, rank)).unflatten(-1, (count, rank))
    products: torch.Tensor = spread.permute(1, 3, 0, 2, 4).contiguous()
    by_head = roots.movedim(1, 0).contiguous()
    for head in range(count):  # one at a time, since C is large
        row = by_head[head] @ products[head, : head + 1] @ by_head[: head + 1]
        products[head, : head + 1] = row
        products[: head + 1, head] = row.mH
    return products
