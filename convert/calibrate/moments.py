"""Second moments of queries, keys and mixed values, summed over batches."""

import torch

from ..merge.attention import AttentionWeights, Groups, Moments
from .rows import NotFiniteError


class MomentSums:
    """Sums over tokens of what `weights` make of the inputs, in float64.

    `groups`: of each K/V head's group, the V heads are also kept as each of its query heads mixes
    them. Without groups all V heads are, as all query heads mix them, at every `stride`-th token:
    their sum takes H * (G*dv)^2 a token.
    """

    def __init__(self, weights: AttentionWeights, groups: Groups | None) -> None:
        self._weights, self._groups = weights, groups
        heads, head_dim, _ = weights.q.shape
        shared, value_dim, _ = weights.v.shape
        self._queries = _zeros(heads, head_dim, head_dim)
        self._keys = _zeros(shared * head_dim, shared * head_dim)
        self._key_sum = _zeros(shared * head_dim)
        self._values = _zeros(shared * value_dim, shared * value_dim)
        self._value_sum = _zeros(shared * value_dim)
        self._members = [self._group_of(h) for h in range(heads)]
        sizes = [len(members) * value_dim for members in self._members]
        self._mixed = [_zeros(size, size) for size in sizes]
        self._mixed_sums = [_zeros(size) for size in sizes]
        self._tokens = self._sampled = 0

    @property
    def _stride(self) -> int:
        return max(1, self._weights.k.shape[0] // 2)

    def _group_of(self, head: int) -> list[int]:
        own = head // self._weights.group_size
        return next((list(g) for g in self._groups or () if own in g), [])

    def add(self, inputs: torch.Tensor, mixing: torch.Tensor | None) -> None:
        """One batch: inputs [B, T, D] and attention weights [B, H, T, T]; None: the module does not
        give them, and values count as they are."""
        w = self._weights
        queries = projected(inputs, w.q, w.q_bias).flatten(0, 1).transpose(0, 1)
        self._queries += queries.transpose(1, 2) @ queries
        keys = projected(inputs, w.k, w.k_bias).flatten(0, 1).flatten(1)
        self._keys += keys.T @ keys
        self._key_sum += keys.sum(0)
        self._tokens += len(keys)
        values = projected(inputs, w.v, w.v_bias)
        if self._groups is None:
            self._add_values(values, mixing)
        else:
            self._add_mixed(values, mixing)

    def result(self, chosen_by: Moments | None = None) -> Moments:
        """The means. `chosen_by`: those of a sum without groups, whose `values` are taken; without
        it `values` has the blocks of the groups alone, 0 between them. Raises NotFiniteError."""
        if not all(bool(found.isfinite().all()) for found in (self._queries, self._keys)):
            raise NotFiniteError
        if self._groups is None:
            values, value_mean = self._values / self._sampled, self._value_sum / self._sampled
        elif chosen_by is not None:
            assert chosen_by.value_mean is not None
            values, value_mean = chosen_by.values, chosen_by.value_mean
        else:
            values, value_mean = self._spread()
        known = self._groups is not None
        return Moments(
            queries=self._queries / self._tokens,
            keys=self._keys / self._tokens,
            key_mean=self._key_sum / self._tokens,
            values=values,
            value_mean=value_mean,
            mixed=[m / self._tokens for m in self._mixed] if known else None,
            mixed_mean=[m / self._tokens for m in self._mixed_sums] if known else None,
        )

    def _add_values(self, values: torch.Tensor, mixing: torch.Tensor | None) -> None:
        flat = values.flatten(2)
        for head in range(len(self._members) if mixing is not None else 1):
            mixed = flat if mixing is None else mixing[:, head, :: self._stride] @ flat
            rows = mixed.flatten(0, 1)
            self._values += rows.T @ rows
            self._value_sum += rows.sum(0)
            self._sampled += len(rows)

    def _add_mixed(self, values: torch.Tensor, mixing: torch.Tensor | None) -> None:
        for head, members in enumerate(self._members):
            own = values[:, :, members].flatten(2)
            rows = (own if mixing is None else mixing[:, head] @ own).flatten(0, 1)
            self._mixed[head] += rows.T @ rows
            self._mixed_sums[head] += rows.sum(0)

    def _spread(self) -> tuple[torch.Tensor, torch.Tensor]:
        value_dim = self._weights.v.shape[1]
        values, means = torch.zeros_like(self._values), torch.zeros_like(self._value_sum)
        for head, members in enumerate(self._members):
            rows = torch.cat([torch.arange(m * value_dim, (m + 1) * value_dim) for m in members])
            share = self._tokens * len(members) * self._weights.group_size  # readers of the group
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


def _zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.float64)
