"""K/V heads that are copies of their neighbours: a GQA checkpoint that was expanded to MHA."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from headcount.model.divisors import divisors


@dataclass(kw_only=True, slots=True)
class Repeats:
    """For each layer, which K/V heads equal the next one in every tensor seen so far."""

    alike: dict[int, tuple[bool, ...]] = field(default_factory=dict)

    def see(self, layer: int, heads: torch.Tensor) -> None:
        """Takes note of all K or V heads of a layer, [heads, rows, ...]."""
        self.note(layer, equal_neighbours(heads))

    def note(self, layer: int, here: tuple[bool, ...]) -> None:
        """The same of heads that were compared already."""
        before = self.alike.get(layer, here)
        self.alike[layer] = tuple(a and b for a, b in zip(before, here, strict=True))

    def distinct(self, layer: int) -> int:
        """The least number of K/V heads that the layer's can be replaced by without a change: runs
        of equal length whose members are all the same."""
        alike = self.alike[layer]
        heads = len(alike) + 1
        return next(n for n in divisors(heads) if _repeats(alike, heads // n))


def equal_neighbours(heads: torch.Tensor) -> tuple[bool, ...]:
    """Whether head i equals head i + 1, for all but the last."""
    return tuple(torch.equal(heads[i], heads[i + 1]) for i in range(len(heads) - 1))


def same_as_runs(heads: torch.Tensor, runs: Sequence[int], merged: torch.Tensor) -> bool:
    """Whether every head equals what its run became. A distance can be too small to be told."""
    pairs = zip(heads.split(list(runs)), merged, strict=True)
    return all(torch.equal(head, new) for run, new in pairs for head in run)


def _repeats(alike: tuple[bool, ...], length: int) -> bool:
    """Whether all neighbours within runs of this length are alike."""
    return all(same for i, same in enumerate(alike) if (i + 1) % length)
