"""Which size each layer gets, so that all together cost least and fit: pure functions."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import exp, log

import torch

# What a layer costs, by its size. Below the least, in the unit of the costs, nothing is told apart.
Costs = Mapping[int, float]
LEAST_COST = 1e-7


def least_cost(layers: Sequence[Costs], wanted: int) -> list[int]:
    """The size of each layer, so that they come to `wanted` at most and cost least; of equals the
    largest. ValueError where even the smallest do not fit.

    Exact, by dynamic programming: the least that the first layers cost, for each sum of sizes.
    """
    least = torch.full((wanted + 1,), torch.inf, dtype=torch.float64)
    least[0] = 0.0
    taken = []
    for costs in layers:
        least, size = _with_layer(least, costs)
        taken.append(size)
    if not bool(least.isfinite().any()):
        raise ValueError("the smallest sizes do not fit")
    left = int((least == least.min()).nonzero().max())
    found = []
    for size in reversed(taken):
        found.append(int(size[left]))
        left -= found[-1]
    return found[::-1]


def _with_layer(least: torch.Tensor, costs: Costs) -> tuple[torch.Tensor, torch.Tensor]:
    """[wanted + 1] each: the least cost with one more layer, and the size of that one then."""
    found = torch.full_like(least, torch.inf)
    size = torch.zeros(len(least), dtype=torch.int64)
    for own, cost in sorted(costs.items()):
        if own < len(least):
            total = least[: len(least) - own] + cost
            better = total <= found[own:]
            found[own:] = torch.where(better, total, found[own:])
            size[own:][better & total.isfinite()] = own
    return found, size


def falling(costs: Costs) -> dict[int, float]:
    """`costs` with none that is less than that of a larger size: what a measurement scatters."""
    found, worst = {}, 0.0
    for size in sorted(costs, reverse=True):
        worst = max(worst, costs[size])
        found[size] = worst
    return dict(sorted(found.items()))


def filled(costs: Costs, step: int) -> dict[int, float]:
    """`costs`, which fall, at every multiple of `step` from the smallest size to the largest, and
    at this: between two that are known on a straight line of logarithms, as errors of low rank
    fall."""
    known = sorted(costs)
    wanted = {*range(-(-known[0] // step) * step, known[-1] + 1, step), known[-1]}
    found = {}
    for low, high in pairwise(known):
        start, end = (log(max(costs[size], LEAST_COST)) for size in (low, high))
        for size in wanted:
            if low <= size < high:
                found[size] = exp(start + (end - start) * (size - low) / (high - low))
    return {**found, known[-1]: costs[known[-1]]}
