"""Which K/V heads become one: in one attention, or in several that must agree on it."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from ..attention_map.attention_tensors import AttentionTensors
from ..merge.attention_weights import AttentionWeights, Groups, Moments
from ..merge.freedom import Freedom
from ..merge.grouping import (
    GroupingCosts,
    cheapest_groups,
    grouping_costs,
    neighbour_groups,
    similar_groups,
)
from ..merge.ladder import Ladder
from ..plan.heads import Heads
from ..stream.repeated_heads import same_as_runs
from ..stream.threads import one_thread
from .tensors import Read, weights_of

# An attention, what may be changed in it, and the heads that it is to get.
Planned = tuple[AttentionTensors, Freedom, Heads]


def is_tied(weights: AttentionWeights, own: Heads) -> bool:
    """Whether the heads that are to become one are equal already: they are better left alone."""
    held = (weights.k, weights.v, weights.k_bias, weights.v_bias)
    firsts = _starts(own.runs)
    return all(same_as_runs(heads, own.runs, heads[firsts]) for heads in held if heads is not None)


def groups_of(
    weights: AttentionWeights, freedom: Freedom, moments: Moments, own: Heads, ladder: Ladder
) -> Groups:
    """The K/V heads that become one: neighbours, or those that are alike where heads may move. The
    longer groups first, as the plan pools them."""
    if ladder.grouping == "contiguous":
        return neighbour_groups(own.before, own.after)
    with one_thread():
        return _longest_first(similar_groups(weights, freedom, moments, own.after))


def common_groups(attentions: Sequence[Planned], read: Read) -> Groups | None:
    """One partition for all of `attentions`, of the least cost in their sum; each counts by the
    shares of its own objectives. They have as many heads and get as many. None: the heads of all
    are tied already. One attention's weights are in memory at a time."""
    if all(is_tied(weights_of(tensors, read), own) for tensors, _, own in attentions):
        return None
    own = attentions[0][2]
    if own.after == 1:
        return neighbour_groups(own.before, own.after)
    total: GroupingCosts | None = None
    for tensors, freedom, _ in attentions:
        costs = grouping_costs(weights_of(tensors, read), freedom, None, own.after)
        total = costs if total is None else total + costs
    assert total is not None
    return _longest_first(cheapest_groups(total))


def recorded_groups(document: Mapping[str, Any]) -> Groups:
    """The groups that a `merged_document` tells of."""
    order, sizes = document["order"], document["groups"]
    starts = _starts(sizes)
    return [order[start : start + size] for start, size in zip(starts, sizes, strict=True)]


def _longest_first(groups: Groups) -> Groups:
    return sorted(groups, key=len, reverse=True)


def _starts(sizes: Sequence[int]) -> list[int]:
    return list(accumulate(sizes[:-1], initial=0))
