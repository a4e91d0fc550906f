"""Choices of layers that cost least together, for each sum of what they take: exact, by dynamic
programming."""

from collections.abc import Mapping, Sequence

import torch

# What a layer costs, by what it takes: of choices that cost the same the first is taken.
Costs = Mapping[int, float]


class LeastCost:
    """`least`, [wanted + 1]: what all `layers` cost at least, for each sum of what they take; inf
    where no choice of theirs comes to it."""

    def __init__(self, layers: Sequence[Costs], wanted: int) -> None:
        self.least = torch.full((wanted + 1,), torch.inf, dtype=torch.float64)
        self.least[0] = 0.0
        self._taken: list[torch.Tensor] = []
        for costs in layers:
            self._add(costs)

    def _add(self, costs: Costs) -> None:
        found = torch.full_like(self.least, torch.inf)
        taken = torch.zeros(len(found), dtype=torch.int64)
        for own, cost in costs.items():
            if own < len(found):
                total = self.least[: len(found) - own] + cost
                better = total < found[own:]
                found[own:] = torch.where(better, total, found[own:])
                taken[own:][better] = own
        self.least = found
        self._taken.append(taken)

    def choice(self, together: int) -> list[int]:
        """What each layer takes where all take so much `together`, at the least cost."""
        found: list[int] = []
        for taken in reversed(self._taken):
            found.append(int(taken[together]))
            together -= found[-1]
        return found[::-1]
