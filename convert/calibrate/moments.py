"""Second moments of queries, keys and mixed values, summed over batches."""

from collections.abc import Sequence

import torch

from ..merge.attention import AttentionWeights, Groups, Moments


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
        zeros = lambda *shape: torch.zeros(*shape, dtype=torch.float64)  # noqa: E731
        self._queries = zeros(heads, head_dim, head_dim)
        self._keys = zeros(shared * head_dim, shared * head_dim)
        self._key_sum = zeros(shared * head_dim)
        self._values = zeros(shared * value_dim, shared * value_dim)
        self._members = [self._group_of(h) for h in range(heads)]
        sizes = [len(members) * value_dim for members in self._members]
        self._mixed = [zeros(size, size) for size in sizes]
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

    def result(self, values: torch.Tensor | None = None) -> Moments:
        """The means. `values`: those of a sum without groups, where this one has them."""
        mixed = None if self._groups is None else [m / self._tokens for m in self._mixed]
        if self._groups is None:
            values = self._values / self._sampled
        return Moments(
            queries=self._queries / self._tokens,
            keys=self._keys / self._tokens,
            key_mean=self._key_sum / self._tokens,
            values=self._spread(mixed or ()) if values is None else values,
            mixed=mixed,
        )

    def _add_values(self, values: torch.Tensor, mixing: torch.Tensor | None) -> None:
        flat = values.flatten(2)
        for head in range(len(self._members) if mixing is not None else 1):
            mixed = flat if mixing is None else mixing[:, head, :: self._stride] @ flat
            rows = mixed.flatten(0, 1)
            self._values += rows.T @ rows
            self._sampled += len(rows)

    def _add_mixed(self, values: torch.Tensor, mixing: torch.Tensor | None) -> None:
        for head, members in enumerate(self._members):
            own = values[:, :, members].flatten(2)
            rows = (own if mixing is None else mixing[:, head] @ own).flatten(0, 1)
            self._mixed[head] += rows.T @ rows

    def _spread(self, mixed: Sequence[torch.Tensor]) -> torch.Tensor:
        """The blocks of `values` that groups have; what lies between groups is not summed."""
        value_dim, result = self._weights.v.shape[1], torch.zeros_like(self._values)
        readers = len(mixed) / len(self._groups or ())
        for members, moment in zip(self._members, mixed, strict=True):
            rows = torch.cat([torch.arange(m * value_dim, (m + 1) * value_dim) for m in members])
            result[rows[:, None], rows[None]] += moment / readers
        return result


def projected(
    inputs: torch.Tensor, heads: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """[B, T, heads, d] of inputs [B, T, E], heads [heads, d, E] and their bias [heads, d]."""
    flat = inputs @ heads.flatten(0, 1).T
    if bias is not None:
        flat = flat + bias.flatten()
    return flat.unflatten(-1, heads.shape[:2])
