"""Heads that go in rounds, since what one is worth depends on which others are there.

Of two heads that do the same each is worth little while the other stays. So half of the heads can
go first, and the rest by an estimate of what is left. That is no better of every model: what one
round and two choose is measured on the text, and the better of both is taken.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from ..plan.request import HeadsOfLayers
from .estimate import estimated
from .head_importance import Scores, rounded
from .text_run import TextRun

ROUNDS = (1, 2)
# The heads that go by scores, when this share of those that are to go does.
Choose = Callable[[Scores, Fraction], HeadsOfLayers]


@dataclass(frozen=True, kw_only=True, slots=True)
class ChosenHeads:
    """`pruned` were chosen in `rounds`; `scores` are the estimates of the whole model, `added` what
    masking the heads of so many rounds adds to the loss on the text, in nats a token."""

    pruned: HeadsOfLayers
    scores: Scores
    rounds: int
    added: Mapping[int, float]


def chosen_in_rounds(run: TextRun, choose: Choose) -> ChosenHeads:
    """The heads that add the least. `run` went forward; its rows are used up."""
    before, scores = run.loss(), rounded(estimated(run, ablated_to_mean=False))
    found: dict[int, HeadsOfLayers] = {}
    for rounds in ROUNDS:
        pruned = _chosen(run, choose, scores, rounds)
        if pruned not in found.values():
            found[rounds] = pruned
    added = {rounds: _added(run, pruned, before) for rounds, pruned in found.items()}
    best = min(added, key=lambda rounds: (added[rounds], rounds))
    return ChosenHeads(pruned=found[best], scores=scores, rounds=best, added=added)


def _chosen(run: TextRun, choose: Choose, scores: Scores, rounds: int) -> HeadsOfLayers:
    pruned = choose(scores, Fraction(1, rounds))
    for number in range(2, rounds + 1):
        if any(pruned.values()):
            run.forward(pruned)
            scores = _of_the_rest(estimated(run, ablated_to_mean=False), pruned)
        pruned = choose(scores, Fraction(number, rounds))
    return pruned


def _of_the_rest(scores: Scores, gone: HeadsOfLayers) -> Scores:
    """`scores` in which those that are gone are worth less than all others together."""
    total = sum(abs(score) for of_layer in scores.values() for score in of_layer)
    return {
        index: [-1 - total if head in gone.get(index, ()) else s for head, s in enumerate(of_layer)]
        for index, of_layer in rounded(scores).items()
    }


def _added(run: TextRun, pruned: HeadsOfLayers, before: float) -> float:
    run.forward(pruned)
    return float(f"{run.loss() - before:.4g}")
