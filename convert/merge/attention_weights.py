"""One attention by its heads, their moments, and what merging makes of it.

Everything here is in the source's own space: a merged attention has as many heads as before, and
the K/V heads that one group shares are equal. Pooling equal heads gives them back bit for bit, so
that every home of a conversion can hold what is merged here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

Groups = Sequence[Sequence[int]]  # the K/V heads that become one, for each new head


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionWeights:
    """The projections of one attention, one entry a head, in float32 or float64.

    `q` [H, d, D] and its bias [H, d]; `k` [G, d, E], `v` [G, dv, E] and theirs, where E is the
    width of what keys come from (D but in cross-attention); `o` [H, D, dv] and its bias [D]. Query
    heads [j*H/G, (j+1)*H/G) read K/V head j.
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    o: torch.Tensor
    q_bias: torch.Tensor | None = None
    k_bias: torch.Tensor | None = None
    v_bias: torch.Tensor | None = None
    o_bias: torch.Tensor | None = None

    @property
    def group_size(self) -> int:
        """Query heads per K/V head."""
        return self.q.shape[0] // self.k.shape[0]

    def queries_of(self, heads: Sequence[int]) -> list[int]:
        """The query heads that read the K/V heads `heads`, in their order."""
        return [head * self.group_size + i for head in heads for i in range(self.group_size)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Moments:
    """Second moments of what an attention computes, biases included and before any rotation.

    `queries` [H, d, d] of every query head. `keys` [G*d, G*d] of all K heads of a token, one after
    the other; `key_mean` [G*d] their mean. `values` [G*dv, G*dv] of all V heads as the attention
    weights mix them, the mean over query heads: what groups are chosen by. `mixed` has for every
    query head those of the V heads of its group, in the group's order, as its own weights mix them,
    [members*dv, members*dv]; None: they are blocks of `values`. `value_mean` [G*dv] and, beside
    `mixed`, `mixed_mean` [members*dv] are the means of the same; without them nothing is known of
    means, and an o bias stays as it is. Without data all are products of the weights, as if inputs
    were white: `white_moments`.
    """

    queries: torch.Tensor
    keys: torch.Tensor
    key_mean: torch.Tensor
    values: torch.Tensor
    mixed: Sequence[torch.Tensor] | None = None
    value_mean: torch.Tensor | None = None
    mixed_mean: Sequence[torch.Tensor] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Merged:
    """`weights` with equal K/V heads inside each of `groups`, which are runs of neighbours now:
    `order` are the source's K/V heads in their new places. `key_error` and `value_error` are the
    shares of the objective that are lost (0: nothing), as the method that was chosen leaves them;
    `key_mean_error` and `value_mean_error` what mean pooling would have left of the same groups."""

    weights: AttentionWeights
    order: tuple[int, ...]
    groups: tuple[int, ...]
    key_error: float
    value_error: float
    key_mean_error: float
    value_mean_error: float
