"""Which K/V heads become one: the partition of the least cost, exact where that can be had."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations

import torch

from .attention_weights import AttentionWeights, Groups, Moments
from .costs import Costs, costs_of
from .freedom import Freedom
from .head_moments import white_moments
from .swaps import grown, pair_total, pair_totals, swapped

_EXACT_HEADS = 16  # 2^16 sets of heads
_AFFORDABLE = 3 * 10**10  # multiplications: some five seconds of eigenvalues on one core


def neighbour_groups(heads: int, count: int) -> Groups:
    """`count` runs of the heads in their order, the longer ones first if they differ (by one)."""
    if not 1 <= count <= heads:
        raise ValueError(f"{heads} K/V heads do not make {count} groups")
    size, longer = divmod(heads, count)
    ends = [(i + 1) * size + min(i + 1, longer) for i in range(count)]
    starts = [0, *ends[:-1]]
    return [list(range(start, end)) for start, end in zip(starts, ends, strict=True)]


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupingCosts:
    """What sets of `heads` K/V heads lose when they become one, to find `count` groups by:
    `of_size[m]` [n] are the costs of all sets of m, in the order of `combinations`. Of more heads
    than can be partitioned exactly, those of pairs. The sum of two is that of two attentions whose
    heads are grouped alike."""

    heads: int
    count: int
    of_size: Mapping[int, torch.Tensor]

    def __add__(self, other: "GroupingCosts") -> "GroupingCosts":
        sums = {size: mine + other.of_size[size] for size, mine in self.of_size.items()}
        return replace(self, of_size=sums)


def similar_groups(
    weights: AttentionWeights, freedom: Freedom, moments: Moments | None, count: int
) -> Groups:
    """`count` groups of the K/V heads, of one size or sizes that differ by one.

    K and V share the partition, since their heads go together. Up to 16 heads it is the best of
    all; above that, a good one that no swap of two heads betters. Where the costs of all sets would
    take too long, a set's is taken from its pairs. Neighbours where heads keep their places. No
    `moments`: those of white inputs. Heads ascend in a group, and groups by their first
    heads. ValueError: no such number of groups.
    """
    heads = len(weights.k)
    neighbours = neighbour_groups(heads, count)
    if not freedom.order or count in (1, heads):
        return neighbours
    return cheapest_groups(grouping_costs(weights, freedom, moments, count))


def grouping_costs(
    weights: AttentionWeights, freedom: Freedom, moments: Moments | None, count: int
) -> GroupingCosts:
    """What `cheapest_groups` needs to know of one attention; no `moments`: of white inputs."""
    heads = len(weights.k)
    costs = costs_of(weights, freedom, white_moments(weights) if moments is None else moments)
    if heads > _EXACT_HEADS:
        found = {2: costs.of(_sets(heads, 2)).cpu()}
    else:
        sizes = sorted({len(members) for members in neighbour_groups(heads, count)})
        found = _set_costs(costs, heads, sizes)
    return GroupingCosts(heads=heads, count=count, of_size=found)


def cheapest_groups(costs: GroupingCosts) -> Groups:
    """The partition of the least cost, as `similar_groups` describes it."""
    heads, count = costs.heads, costs.count
    if heads > _EXACT_HEADS:
        pairs, neighbours = _pair_table(costs.of_size[2], heads), neighbour_groups(heads, count)
        starts = [swapped(start, pairs) for start in (neighbours, grown(neighbours, pairs))]
        groups = min(starts, key=lambda groups: pair_total(groups, pairs))
    else:
        by_set = {
            one: cost
            for size, found in costs.of_size.items()
            for one, cost in zip(combinations(range(heads), size), found.tolist(), strict=True)
        }
        groups = _best(heads, count, by_set)
    return sorted(sorted(members) for members in groups)


def _sets(heads: int, size: int) -> torch.Tensor:
    """[n, size]: all sets of `size` heads."""
    return torch.tensor(list(combinations(range(heads), size)))


def _set_costs(costs: Costs, heads: int, sizes: list[int]) -> dict[int, torch.Tensor]:
    """Of every set of one of `sizes`; from pairs if the sets themselves would take too long."""
    sets = {size: _sets(heads, size) for size in sizes}
    if sum(costs.work(len(some), size) for size, some in sets.items()) <= _AFFORDABLE:
        return {size: costs.of(some).cpu() for size, some in sets.items()}
    pairs = _pair_table(costs.of(_sets(heads, 2)), heads)
    return {size: pair_totals(some, pairs) for size, some in sets.items()}


def _pair_table(found: torch.Tensor, heads: int) -> torch.Tensor:
    """[G, G]: the cost of every two heads, 0 on the diagonal."""
    pairs = _sets(heads, 2)
    table = torch.zeros(heads, heads, dtype=torch.float64)
    table[pairs[:, 0], pairs[:, 1]] = found.cpu()
    return table + table.T


def _best(heads: int, count: int, costs: Mapping[tuple[int, ...], float]) -> Groups:
    """The partition of the least summed cost, by dynamic programming over the heads that are left:
    the first of them goes with every set of others in turn."""
    size, longer = divmod(heads, count)

    @cache
    def least(left: tuple[int, ...], longer: int) -> tuple[float, Groups]:
        if not left:
            return 0.0, ()
        found: tuple[float, Groups] = (float("inf"), ())
        shorter = (len(left) - longer * (size + 1)) // size
        for length in [size + 1] * (longer > 0) + [size] * (shorter > 0):
            for others in combinations(left[1:], length - 1):
                group = (left[0], *others)
                rest = tuple(head for head in left if head not in group)
                total, groups = least(rest, longer - (length > size))
                if total + costs[group] < found[0]:
                    found = (total + costs[group], (group, *groups))
        return found

    return least(tuple(range(heads)), longer)[1]
