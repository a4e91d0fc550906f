"""Rows to train on and to measure on: what both models read, whatever it is cut from."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor

LARGEST_HELD_OUT_SHARE = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """What both models read in one forward, by the names of its arguments, and the tokens that they
    should predict: `targets` [rows, tokens]. No position is padded."""

    inputs: Mapping[str, Tensor]
    targets: Tensor

    @property
    def has_encoder(self) -> bool:
        """Whether an encoder reads beside the decoder."""
        return "decoder_input_ids" in self.inputs

    def to(self, device: torch.device) -> "Reading":
        """The same on that device."""
        moved = {name: value.to(device) for name, value in self.inputs.items()}
        return Reading(inputs=moved, targets=self.targets.to(device))


class Part(Protocol):
    """Numbered rows. `numbers` are some of them, [count]."""

    def __len__(self) -> int: ...

    def tokens(self, numbers: Tensor) -> int:
        """Tokens that are predicted of these rows."""

    def forwards(self, numbers: Tensor) -> list[Tensor]:
        """The rows of each forward. How many these are depends on the count alone."""

    def reading(self, numbers: Tensor) -> Reading:
        """The rows of one forward."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """`held_out` is never trained on. `sequence_length`: tokens that are predicted of a row, of a
    pair at most."""

    train: Part
    held_out: Part
    sequence_length: int


def held_share(held_out: int, tokens: int) -> float:
    """The share of `tokens` tokens that is held out where `held_out` of them are asked for."""
    return min(held_out / max(tokens, 1), LARGEST_HELD_OUT_SHARE)


def all_of(part: Part) -> Tensor:
    """The numbers of all rows."""
    return torch.arange(len(part))


def batch_rows(step: int, *, rows: int, batch_size: int, seed: int) -> Tensor:
    """The numbers of the rows that step `step` reads: [batch_size].

    Every pass over the rows has an order of its own, drawn from the seed; rows that do not fill a
    batch at its end are left to other passes.
    """
    passed, place = divmod(step, rows // batch_size)
    return _order(rows, seed, passed)[place * batch_size :][:batch_size]


@lru_cache(maxsize=2)
def _order(rows: int, seed: int, passed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed * 1_000_003 + passed)
    return torch.randperm(rows, generator=generator)
