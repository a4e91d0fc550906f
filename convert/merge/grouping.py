"""Which K/V heads become one: the partition of the least cost, exact where that can be had."""

from collections.abc import Mapping
from functools import cache
from itertools import combinations

import torch

from .attention import AttentionWeights, Freedom, Groups, Moments
from .costs import Costs, costs_of
from .moments import white_moments
from .swaps import grown, pair_total, swapped

_EXACT_HEADS = 16  # 2^16 sets of heads
_AFFORDABLE = 3 * 10**10  # multiplications: some ten seconds of eigenvalues on two cores


def neighbour_groups(heads: int, count: int) -> Groups:
    """`count` runs of the heads in their order, the longer ones first if they differ (by one)."""
    if not 1 <= count <= heads:
        raise ValueError(f"{heads} K/V heads do not make {count} groups")
    size, longer = divmod(heads, count)
    ends = [(i + 1) * size + min(i + 1, longer) for i in range(count)]
    starts = [0, *ends[:-1]]
    return [list(range(start, end)) for start, end in zip(starts, ends, strict=True)]


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
    costs = costs_of(weights, freedom, white_moments(weights) if moments is None else moments)
    if heads > _EXACT_HEADS:
        pairs = _pair_costs(costs, heads)
        starts = [swapped(start, pairs) for start in (neighbours, grown(neighbours, pairs))]
        groups = min(starts, key=lambda groups: pair_total(groups, pairs))
    else:
        sizes = sorted({len(members) for members in neighbours})
        groups = _best(heads, count, _set_costs(costs, heads, sizes))
    return sorted(sorted(members) for members in groups)


def _set_costs(costs: Costs, heads: int, sizes: list[int]) -> Mapping[tuple[int, ...], float]:
    """Of every set of one of `sizes`; from pairs if the sets themselves would take too long."""
    sets = {size: list(combinations(range(heads), size)) for size in sizes}
    if sum(costs.work(len(some), size) for size, some in sets.items()) <= _AFFORDABLE:
        lost = {size: costs.of(torch.tensor(some)).tolist() for size, some in sets.items()}
        return {
            one: cost for size in sizes for one, cost in zip(sets[size], lost[size], strict=True)
        }
    pairs = _pair_costs(costs, heads)
    return {one: pair_total([one], pairs) for some in sets.values() for one in some}


def _pair_costs(costs: Costs, heads: int) -> torch.Tensor:
    """[G, G]: the cost of every two heads, 0 on the diagonal."""
    pairs = torch.tensor(list(combinations(range(heads), 2)))
    table = torch.zeros(heads, heads, dtype=torch.float64)
    table[pairs[:, 0], pairs[:, 1]] = costs.of(pairs).cpu()
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
