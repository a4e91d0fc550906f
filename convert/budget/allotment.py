"""Which size each layer gets, so that all together cost least and fit: pure functions."""

from collections.abc import Sequence
from itertools import pairwise
from math import exp, log

from ..least_cost import Costs, LeastCost

# In the unit of the costs, which are those of a layer by its size: below it nothing is told apart.
LEAST_COST = 1e-7


def least_cost(layers: Sequence[Costs], wanted: int) -> list[int]:
    """The size of each layer, so that they come to `wanted` at most and cost least; of equals the
    largest. ValueError where even the smallest do not fit."""
    found = LeastCost([dict(sorted(own.items(), reverse=True)) for own in layers], wanted)
    least = found.least
    if not bool(least.isfinite().any()):
        raise ValueError("the smallest sizes do not fit")
    return found.choice(int((least == least.min()).nonzero().max()))


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
