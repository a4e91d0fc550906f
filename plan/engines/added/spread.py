"""How an engine spreads the kinds of a model's matrices over the ranks of a stage."""

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from headcount.arch.modules.module import Kind

from ...planned_model import PlannedModel
from ...request import Workload


class Spread(NamedTuple):
    """A rank holds 1 / `tp` of each matrix, and what several ranks hold of K/V heads and latents
    whole; `parts` are kinds of which it holds another part, with `why` as a formula's words.
    `experts_tp` ranks share one expert."""

    tp: int
    parts: tuple[tuple[Kind, Fraction], ...] = ()
    why: str = ""
    experts_tp: int = 1

    @property
    def experts(self) -> Fraction:
        """The part of a layer's experts of which a rank holds something."""
        own = dict(self.parts).get("experts", Fraction(1, self.tp))
        return own * self.experts_tp


SpreadOf = Callable[[PlannedModel, Workload], Spread]


def over_tp(model: PlannedModel, work: Workload) -> Spread:
    """Everything over the ranks of tp."""
    return Spread(tp=work.request.tp, experts_tp=work.request.tp)
