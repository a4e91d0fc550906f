"""Pairs as rows: what the encoder reads, and what the decoder should say."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headcount.model.errors import HeadcountError
from headcount.running.pairs.encoded_pairs import decoder_inputs

from .rows import Reading, Rows, held_share


@dataclass(frozen=True, kw_only=True, slots=True)
class PairRow:
    """`target` [tokens]; `source` gives what the encoder reads, [1, …], and `digest` is that of
    both."""

    source: Callable[[], Tensor]
    target: Tensor
    digest: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PairPart:
    """A forward reads one pair, as `evaluate` does: padding would change what some encoders give
    (windows, convolutions, capacities of experts). `input_name` is the encoder's argument, `start`
    the token that the decoder begins with."""

    pairs: tuple[PairRow, ...]
    input_name: str
    start: int

    def __len__(self) -> int:
        return len(self.pairs)

    def tokens(self, numbers: Tensor) -> int:
        return sum(len(self.pairs[number].target) for number in numbers.tolist())

    def forwards(self, numbers: Tensor) -> list[Tensor]:
        return list(numbers.split(1)) if len(numbers) else []

    def reading(self, numbers: Tensor) -> Reading:
        (number,) = numbers.tolist()
        pair = self.pairs[number]
        target = pair.target[None]
        given = {"decoder_input_ids": decoder_inputs(target, self.start)}
        return Reading(inputs={self.input_name: pair.source(), **given}, targets=target)


def part_pairs(
    files: Sequence[Sequence[PairRow]],
    *,
    input_name: str,
    start: int,
    sequence_length: int,
    held_out: int,
) -> Rows:
    """The last pairs of every file are held out: `held_out` tokens of the targets of all together,
    at most a tenth of each. Raises HeadcountError if either part has no pair."""
    total = sum(len(pair.target) for pairs in files for pair in pairs)
    share = held_share(held_out, total)
    cuts = [_cut(pairs, share) for pairs in files]
    kept = [pair for pairs, cut in zip(files, cuts, strict=True) for pair in pairs[:cut]]
    tail = [pair for pairs, cut in zip(files, cuts, strict=True) for pair in pairs[cut:]]
    if not (kept and tail):
        raise HeadcountError(
            f"there are {len(kept) + len(tail):,} pairs with {total:,} tokens of targets, of which"
            f" {len(tail):,} pairs can be held out: give more pairs (or a larger --held-out; at"
            " most a tenth of the tokens of each file is held out)"
        )
    train, held = (
        PairPart(pairs=tuple(part), input_name=input_name, start=start) for part in (kept, tail)
    )
    return Rows(train=train, held_out=held, sequence_length=sequence_length)


def pairs_digest(files: Sequence[Sequence[PairRow]]) -> str:
    """Of all that is read and predicted."""
    said = "\n".join(pair.digest for pairs in files for pair in pairs)
    return hashlib.sha256(said.encode()).hexdigest()


def digest_of(*tensors: Tensor) -> str:
    """Of their numbers."""
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(f"{tensor.dtype} {list(tensor.shape)}\n".encode())
        found.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def _cut(pairs: Sequence[PairRow], share: float) -> int:
    """Where the last pairs begin that have `share` of the tokens, or less."""
    left = round(share * sum(len(pair.target) for pair in pairs))
    for number in range(len(pairs), 0, -1):
        left -= len(pairs[number - 1].target)
        if left < 0:
            return number
    return 0
