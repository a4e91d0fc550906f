"""A head's rows in blocks that do not mix: one for the rotary frequencies, one for other rows.

What rotates together is one complex number, and rotation multiplies it by e^(i theta n). Maps that
commute with it are complex numbers too, one a frequency; products of different frequencies, or of
rotated and other rows, vanish in the mean over relative positions. Over those, E (Re q^* e)^2 is
E|q|^2 E|e|^2 / 2, which is why a frequency counts half of what other rows do.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from .freedom import Freedom
from .shared_head import SharedHead, averaging_head, energy, lost, own_blocks


@dataclass(frozen=True, kw_only=True, slots=True)
class RowBlock:
    """`weight` [F, m, r, r] and `covariance` [F, m*r, m*r] as in `shared`; `counts`: how much of
    it is the objective's. `real` and `imaginary` [F] are the rows of each frequency, or `real` [r]
    the rows of the one block that is not rotated, whose `imaginary` is None."""

    weight: torch.Tensor
    covariance: torch.Tensor
    counts: float
    real: torch.Tensor
    imaginary: torch.Tensor | None

    @property
    def members(self) -> int:
        return self.weight.shape[-3]

    @property
    def energy(self) -> float:
        return self.counts * float(energy(self.weight, self.covariance).sum())

    def lost(self, head: SharedHead) -> float:
        return self.counts * float(lost(head, self.weight, self.covariance).sum())

    def write(self, maps: torch.Tensor, into: torch.Tensor) -> None:
        """Put the maps of this block [F, m, r, r] into those of whole heads [m, d, d]."""
        if self.imaginary is None:
            into[:, self.real[:, None], self.real] = maps[0]
            return
        number = maps[..., 0, 0].T
        into[:, self.real, self.real] = number.real
        into[:, self.imaginary, self.imaginary] = number.real
        into[:, self.real, self.imaginary] = -number.imag
        into[:, self.imaginary, self.real] = number.imag


def blocks_of(
    weight: torch.Tensor, moments: torch.Tensor, mean: torch.Tensor, freedom: Freedom
) -> list[RowBlock]:
    """The blocks of K heads with `moments` [m*d, m*d] and `mean` [m*d], read by queries with
    `weight` [m, d, d]. Rows that are not rotated are taken about their mean: the same amount on the
    score of every key is nothing to softmax."""
    members, width = weight.shape[:2]
    spread = moments.unflatten(0, (members, width)).unflatten(-1, (members, width))
    blocks = []
    if freedom.real:
        blocks.append(_rotated(weight, spread, freedom))
    turning = {*freedom.real, *freedom.imaginary}
    still = torch.tensor([row for row in range(width) if row not in turning], device=weight.device)
    if len(still):
        level = mean.unflatten(0, (members, width))[:, still].flatten()
        plain = spread[:, still][..., still].flatten(-2).flatten(0, 1)
        blocks.append(
            RowBlock(
                weight=weight[:, still[:, None], still][None],
                covariance=(plain - torch.outer(level, level))[None],
                counts=1.0,
                real=still,
                imaginary=None,
            )
        )
    return blocks


def renorm_scale(blocks: Sequence[RowBlock]) -> float:
    """What brings the mean of heads to the mean of their sizes (root mean squares); 1 if 0."""
    sizes = sum(_sizes(block) for block in blocks)
    assert isinstance(sizes, torch.Tensor)
    of_mean = sum(float(_size_of_mean(block)) for block in blocks)
    return float(sizes.clamp_min(0).sqrt().mean()) / of_mean**0.5 if of_mean > 0 else 1.0


def _sizes(block: RowBlock) -> torch.Tensor:
    """[m]: the mean square of every member."""
    own = own_blocks(block.covariance, block.members).diagonal(dim1=-2, dim2=-1)
    return own.real.sum((0, -1))


def _size_of_mean(block: RowBlock) -> torch.Tensor:
    row = averaging_head(block.weight).row
    return (row @ block.covariance * row.conj()).sum().real


def _rotated(weight: torch.Tensor, spread: torch.Tensor, freedom: Freedom) -> RowBlock:
    real = torch.tensor(freedom.real, device=weight.device)
    imaginary = torch.tensor(freedom.imaginary, device=weight.device)
    read = weight.diagonal(dim1=-2, dim2=-1)
    strength = (read[:, real] + read[:, imaginary]).T[..., None, None]
    product = torch.complex(
        spread[:, real, :, real] + spread[:, imaginary, :, imaginary],
        spread[:, imaginary, :, real] - spread[:, real, :, imaginary],
    )
    return RowBlock(
        weight=strength.to(product.dtype),
        covariance=product,
        counts=0.5,
        real=real,
        imaginary=imaginary,
    )
