"""The tokens that heads are looked at on: random ones, and then the same once more."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from headcount.model.errors import HeadcountError

DEFAULT_TOKENS = 64
LEAST_TOKENS = 3  # with fewer, the previous token is also the one that induction looks for


@dataclass(frozen=True, kw_only=True, slots=True)
class RepeatedTokens:
    """`ids` [sequences, start + 2 * tokens]: after `start` tokens that are no part of the pattern
    (BOS), `tokens` random ones, which differ within a sequence, and these once more."""

    ids: Tensor
    tokens: int
    start: int

    def batches(self, size: int) -> Iterator[Tensor]:
        return iter(self.ids.split(size))

    @property
    def first_copy(self) -> Tensor:
        """[sequences, tokens]: what an encoder is given to align with."""
        return self.ids[:, self.start : self.start + self.tokens]


def repeated_tokens(
    usable: Tensor, *, tokens: int, sequences: int, start: int | None, seed: int
) -> RepeatedTokens:
    """Sequences of tokens drawn from `usable` ([n]), each token at most once in a copy. `start` is
    the id that a sequence begins with. The same arguments give the same tokens on every device."""
    generator = torch.Generator().manual_seed(seed)
    picks = [torch.randperm(len(usable), generator=generator)[:tokens] for _ in range(sequences)]
    copy = usable[torch.stack(picks)]
    begin = torch.full((sequences, 0 if start is None else 1), start or 0)
    ids = torch.cat([begin, copy, copy], dim=1)
    return RepeatedTokens(ids=ids, tokens=tokens, start=begin.shape[1])


def resolve_tokens(
    tokens: int | None, *, usable: int, positions: int | None, start: int, name: str
) -> int:
    """How many random tokens are repeated. Raises HeadcountError where the vocabulary has fewer
    that differ, or twice as many do not fit in `positions`."""
    room = DEFAULT_TOKENS if positions is None else (positions - start) // 2
    most = min(room, usable) if positions is not None or tokens is None else usable
    wanted = min(DEFAULT_TOKENS, most) if tokens is None else tokens
    if wanted < LEAST_TOKENS:
        raise HeadcountError(
            f"{name}: {wanted} tokens, repeated, show nothing: it takes at least {LEAST_TOKENS}"
        )
    if wanted > usable:
        raise HeadcountError(
            f"--tokens {wanted:,}: {name} has {usable:,} tokens that differ and are not special"
        )
    if positions is not None and wanted > room:
        raise HeadcountError(
            f"--tokens {wanted:,}: repeated they take {start + 2 * wanted:,} positions, {name} has"
            f" {positions:,}; pass --tokens {room} or less"
        )
    return wanted
