"""Second moments of queries, keys and mixed values, summed over batches."""

from collections.abc import Iterator
from dataclasses import replace

import torch

from ..merge.attention_weights import AttentionWeights, Groups, Moments
from ..merge.head_moments import white_moments, with_white
from .gram import Gram
from .placed import CPU, placed
from .state_rows import NotFiniteStatesError


class MomentSums:
    """Sums over tokens of what `weights` make of the inputs, in float64.

    `groups`: of each K/V head's group, the V heads are also kept as each of its query heads mixes
    them. Without groups all V heads are, as all query heads mix them, at every `stride`-th token:
    their sum takes H * (G*dv)^2 a token. Those of queries and keys follow from the inputs'.
    `white`: this share of what white inputs would give is added to all of them.
    """

    def __init__(
        self, weights: AttentionWeights, groups: Groups | None, white: float = 0.0
    ) -> None:
        self._weights, self._groups, self._white = weights, groups, white
        heads, _, width = weights.q.shape
        shared, value_dim, _ = weights.v.shape
        self._device = device = weights.q.device
        self._inputs, self._input_sum = Gram(width, device=device), _zeros(width, device=device)
        # What keys and values are made of, where that is something else.
        self._memory: tuple[Gram, torch.Tensor] | None = None
        self._memory_tokens = self._mixed_tokens = 0
        self._values = _zeros(shared * value_dim, shared * value_dim, device=device)
        self._value_sum = _zeros(shared * value_dim, device=device)
        self._members = [self._group_of(h) for h in range(heads)]
        sizes = [len(members) * value_dim for members in self._members]
        self._mixed = [_zeros(size, size, device=device) for size in sizes]
        self._mixed_sums = [_zeros(size, device=device) for size in sizes]
        self._tokens = self._sampled = 0

    @property
    def _stride(self) -> int:
        return max(1, self._weights.k.shape[0] // 2)

    def _group_of(self, head: int) -> list[int]:
        own = head // self._weights.group_size
        return next((list(g) for g in self._groups or () if own in g), [])

    def add(
        self,
        inputs: torch.Tensor,
        mixing: torch.Tensor | None,
        memory: torch.Tensor | None = None,
    ) -> None:
        """One batch: inputs [B, T, D] and attention weights [B, H, T, S]; None: the module does not
        give them, and values count as they are. In cross-attention keys and values are made of the
        `memory` [B, S, E], in all batches; None: of the inputs."""
        self.take(self.parts(inputs, mixing, memory))

    def parts(
        self,
        inputs: torch.Tensor,
        mixing: torch.Tensor | None,
        memory: torch.Tensor | None = None,
    ) -> Iterator[torch.Tensor]:
        """What a batch adds, piece by piece, for `take`, here or in another process."""
        rows = inputs.flatten(0, 1)
        yield torch.tensor(len(rows))
        yield from self._inputs.parts(rows)
        yield rows.sum(0)
        read = inputs if memory is None else memory
        yield torch.tensor(0 if memory is None else read.shape[:2].numel())
        if memory is not None:
            rows = memory.flatten(0, 1)
            yield from Gram.parts(rows)
            yield rows.sum(0)
        values = projected(read, self._weights.v, self._weights.v_bias)
        made = self._of_values if self._groups is None else self._of_mixed
        for mixed in made(values, mixing):
            yield torch.tensor(len(mixed))
            yield mixed.T @ mixed
            yield mixed.sum(0)

    def take(self, parts: Iterator[torch.Tensor]) -> None:
        """Adds the next `parts`, which are those of one batch."""
        self._tokens += int(next(parts))
        self._inputs.take(parts)
        self._input_sum += next(parts)
        if of_memory := int(next(parts)):
            width = self._weights.k.shape[-1]
            gram, total = self._memory = self._memory or (
                Gram(width, device=self._device),
                _zeros(width, device=self._device),
            )
            self._memory_tokens += of_memory
            gram.take(parts)
            total += next(parts)
        if self._groups is None:
            for rows in parts:
                self._sampled += int(rows)
                self._values += next(parts)
                self._value_sum += next(parts)
            return
        for own, total in zip(self._mixed, self._mixed_sums, strict=True):
            of_head = int(next(parts))  # the same of each
            own += next(parts)
            total += next(parts)
        self._mixed_tokens += of_head

    def result(self, chosen_by: Moments | None = None) -> Moments:
        """The means. `chosen_by`: those of a sum without groups, whose `values` are taken; without
        it `values` has the blocks of the groups alone, 0 between them. They are on the CPU, as
        what is merged by them. Raises NotFiniteStatesError."""
        w, inputs, mean = self._weights, self._inputs.result(), self._input_sum / self._tokens
        if not bool(inputs.isfinite().all()):
            raise NotFiniteStatesError
        inputs /= self._tokens
        if self._groups is None:
            values, value_mean = self._values / self._sampled, self._value_sum / self._sampled
        elif chosen_by is not None:
            assert chosen_by.value_mean is not None
            known = (chosen_by.values, chosen_by.value_mean)
            values, value_mean = placed(known, self._device)
        else:
            values, value_mean = self._spread()
        keys, key_mean = _made_of(*(self._of_memory() or (inputs, mean)), w.k, w.k_bias)
        is_mixed = self._groups is not None
        found = Moments(
            queries=self._queries(inputs, mean),
            keys=keys,
            key_mean=key_mean,
            values=values,
            value_mean=value_mean,
            mixed=[m / self._mixed_tokens for m in self._mixed] if is_mixed else None,
            mixed_mean=[m / self._mixed_tokens for m in self._mixed_sums] if is_mixed else None,
        )
        return placed(self._whitened(found) if self._white else found, CPU)

    def _of_memory(self) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Second moment and mean of what keys and values are made of, if it is not the inputs."""
        if self._memory is None:
            return None
        gram, total = self._memory
        return gram.result() / self._memory_tokens, total / self._memory_tokens

    def _whitened(self, found: Moments) -> Moments:
        assumed, share = white_moments(self._weights), self._white
        queries = zip(found.queries, assumed.queries, strict=True)
        return replace(
            found,
            queries=torch.stack([with_white(one, white, share) for one, white in queries]),
            keys=with_white(found.keys, assumed.keys, share),
            values=with_white(found.values, assumed.values, share),
            mixed=None
            if found.mixed is None
            else [
                with_white(one, assumed.values[rows][:, rows], share)
                for one, rows in zip(found.mixed, map(self._rows, self._members), strict=True)
            ],
        )

    def _rows(self, members: list[int]) -> torch.Tensor:
        """Where the rows of V heads are among those of all."""
        width = self._weights.v.shape[1]
        return torch.cat([torch.arange(m * width, (m + 1) * width) for m in members])

    def _queries(self, inputs: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
        q, bias = self._weights.q, self._weights.q_bias
        biases = [None] * len(q) if bias is None else list(bias)
        made = [_made_of(inputs, mean, head, b)[0] for head, b in zip(q, biases, strict=True)]
        return torch.stack(made)

    def _of_values(
        self, values: torch.Tensor, mixing: torch.Tensor | None
    ) -> Iterator[torch.Tensor]:
        """All V heads as each query head mixes them, at some tokens."""
        flat = values.flatten(2)
        for head in range(len(self._members) if mixing is not None else 1):
            mixed = flat if mixing is None else mixing[:, head, :: self._stride] @ flat
            yield mixed.flatten(0, 1)

    def _of_mixed(
        self, values: torch.Tensor, mixing: torch.Tensor | None
    ) -> Iterator[torch.Tensor]:
        """The V heads of each query head's group as it mixes them."""
        for head, members in enumerate(self._members):
            own = values[:, :, members].flatten(2)
            yield (own if mixing is None else mixing[:, head] @ own).flatten(0, 1)

    def _spread(self) -> tuple[torch.Tensor, torch.Tensor]:
        values, means = torch.zeros_like(self._values), torch.zeros_like(self._value_sum)
        for head, members in enumerate(self._members):
            rows = self._rows(members)
            share = (
                self._mixed_tokens * len(members) * self._weights.group_size
            )  # readers of the group
            values[rows[:, None], rows[None]] += self._mixed[head] / share
            means[rows] += self._mixed_sums[head] / share
        return values, means


def projected(inputs: torch.Tensor, heads: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """[B, T, heads, d] of inputs [B, T, E], heads [heads, d, E] and their bias [heads, d]."""
    flat = inputs @ heads.flatten(0, 1).T
    if bias is not None:
        flat = flat + bias.flatten()
    shaped: torch.Tensor = flat.unflatten(-1, heads.shape[:2])
    return shaped


def _made_of(
    inputs: torch.Tensor, mean: torch.Tensor, heads: torch.Tensor, bias: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Second moment and mean of what projections [..., D] and their bias [...] make of inputs with
    those, [D, D] and [D]: E[(W x + b)(W x + b)^T], all rows of W side by side."""
    weight = heads.flatten(0, -2).double()
    second, first = weight @ inputs @ weight.T, weight @ mean
    if bias is None:
        return second, first
    added = bias.flatten().double()
    crossed = torch.outer(first, added)
    return second + crossed + crossed.T + torch.outer(added, added), first + added


def _zeros(*shape: int, device: torch.device) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.float64, device=device)
