"""Which query heads a model misses least, where layers may lose different numbers of them."""

from collections.abc import Mapping, Sequence

from headcount.model.mixers import Attention
from headcount.model.pruned_heads import shapes_by_count

from ..least_cost import LeastCost
from .head_importance import Scores, gone_of

# How many heads go of a layer -> what of its scores is lost then, and which they are.
_Choices = Mapping[int, tuple[float, tuple[int, ...]]]


def least_of_all(
    mixers: Mapping[int, Attention], scores: Scores, wanted: int
) -> dict[int, tuple[int, ...]]:
    """The query heads to take from all layers together, so that what is lost of all scores is
    least: layer -> heads, of the layers that lose any. As many as can go, and no more than
    `wanted`: of each layer some stay, as many of each K/V head that stays."""
    layers = sorted(mixers)
    choices = [_choices(mixers[index], scores[index]) for index in layers]
    costs = [{gone: cost for gone, (cost, _) in own.items()} for own in choices]
    least = LeastCost(costs, wanted)
    counts = least.choice(int(least.least.isfinite().nonzero().max()))
    chosen = zip(layers, choices, counts, strict=True)
    return {index: own[gone][1] for index, own, gone in chosen if gone}


def _choices(mixer: Attention, scores: Sequence[float]) -> _Choices:
    """Of each number that can go the cheapest, the fewest K/V heads first."""
    found = {}
    for stay, shapes in shapes_by_count(mixer).items():
        gone = [gone_of(mixer, scores, shape) for shape in shapes]
        costs = [sum(scores[head] for head in heads) for heads in gone]
        found[mixer.num_attention_heads - stay] = min(
            zip(costs, gone, strict=True), key=lambda choice: choice[0]
        )
    return found
