"""Which query heads a model misses least, where layers may lose different numbers of them."""

from collections.abc import Mapping, Sequence

import torch

from headcount.model.mixers import Attention
from headcount.model.pruned_heads import shapes_by_count

from .head_importance import Scores, gone_of

# How many heads go of a layer -> what of its scores is lost then, and which they are.
_Choices = Mapping[int, tuple[float, tuple[int, ...]]]


def least_of_all(
    mixers: Mapping[int, Attention], scores: Scores, wanted: int
) -> dict[int, tuple[int, ...]]:
    """The query heads to take from all layers together, so that what is lost of all scores is
    least: layer -> heads, of the layers that lose any. As many as can go, and no more than
    `wanted`: of each layer some stay, as many of each K/V head that stays.

    Exact, by dynamic programming: the least that the first layers lose, for each number of heads.
    """
    layers = sorted(mixers)
    choices = [_choices(mixers[index], scores[index]) for index in layers]
    least = torch.full((wanted + 1,), torch.inf, dtype=torch.float64)
    least[0] = 0.0
    taken = []
    for own in choices:
        least, count = _with_layer(least, own)
        taken.append(count)
    left = int(least.isfinite().nonzero().max())
    found = {}
    for index, own, count in reversed(list(zip(layers, choices, taken, strict=True))):
        gone = int(count[left])
        if gone:
            found[index] = own[gone][1]
        left -= gone
    return dict(sorted(found.items()))


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


def _with_layer(least: torch.Tensor, own: _Choices) -> tuple[torch.Tensor, torch.Tensor]:
    """[wanted + 1] each: the least that is lost with one more layer, and how many heads go of that
    one then; of equals the fewest."""
    found = torch.full_like(least, torch.inf)
    count = torch.zeros(len(least), dtype=torch.int64)
    for gone, (cost, _) in own.items():
        if gone < len(least):
            total = least[: len(least) - gone] + cost
            better = total < found[gone:]
            found[gone:] = torch.where(better, total, found[gone:])
            count[gone:][better] = gone
    return found, count
