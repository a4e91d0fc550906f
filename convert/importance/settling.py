"""From a number of query heads to prune to the heads themselves."""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from headcount.model.mixers import Attention
from headcount.model.pruned_heads import PrunedShare, shapes_by_count

from ..plan.errors import HeadCountError
from ..plan.pruning import check_pruned, shapes_to_have
from ..plan.refusals.types import STATES, refuse
from ..plan.request import (
    CALIBRATION_TOKENS,
    ConversionRequest,
    HeadsOfLayers,
    unread_text,
)
from ..plan.source import ConversionSource
from .head_importance import HeadImportance, Scores, least_important

if TYPE_CHECKING:
    from .rounds import Choose


def settled(
    source: ConversionSource, request: ConversionRequest
) -> tuple[ConversionRequest, HeadImportance | None]:
    """The request with the heads that go by their numbers, and what they were chosen by; as it is
    where they are named already, or none go. Reads weights and, where there is one, the calibration
    text. Raises HeadcountError."""
    wanted = request.pruned_heads
    if isinstance(wanted, Mapping) and request.calibration and request.ladder is None:
        raise unread_text("heads that are named")
    if wanted is None or isinstance(wanted, Mapping):
        return request, None
    refuse(source, STATES)
    check_pruned(source)
    mixers = {index: mixer for (index, _), mixer in source.attention_map.mixers.items()}
    if request.across_layers:
        choose = _of_all(mixers, _count_of_all(source, mixers, wanted))
    else:
        choose = _of_each(source, mixers, wanted)
    pruned, importance = _chosen(source, request, choose)
    return replace(request, pruned_heads=pruned, across_layers=False), importance


def _of_all(mixers: Mapping[int, Attention], count: int) -> "Choose":
    from .across_layers import least_of_all  # imports torch, which other plans do without

    def choose(scores: Scores, share: Fraction) -> HeadsOfLayers:
        return least_of_all(mixers, scores, int(count * share))

    return choose


def _of_each(
    source: ConversionSource, mixers: Mapping[int, Attention], wanted: PrunedShare
) -> "Choose":
    whole = shapes_to_have(source, wanted)

    def choose(scores: Scores, share: Fraction) -> HeadsOfLayers:
        shapes = {index: _part(mixers[index], own, share) for index, own in whole.items()}
        return least_important(mixers, scores, shapes)

    return choose


def _part(
    mixer: Attention, shapes: tuple[tuple[int, int], ...], share: Fraction
) -> tuple[tuple[int, int], ...]:
    """What is left of a layer when at most that share of its heads is gone that are to go."""
    heads = mixer.num_attention_heads
    gone = (heads - shapes[0][0] * shapes[0][1]) * share
    possible = shapes_by_count(mixer)
    return possible[min(stay for stay in possible if heads - stay <= gone)]


def _count_of_all(
    source: ConversionSource, mixers: Mapping[int, Attention], wanted: PrunedShare
) -> int:
    """How many heads go at most of all layers. Raises HeadCountError where none could, or where
    layers would be left without any."""
    total = sum(mixer.num_attention_heads for mixer in mixers.values())
    count = int(wanted if isinstance(wanted, int) else wanted * total)
    steps = [m.num_attention_heads - n for m in mixers.values() for n in shapes_by_count(m)]
    least, most = min((n for n in steps if n), default=0), total - len(mixers)
    if not least or not least <= count <= most:
        raise HeadCountError(
            f"{source.label}: of the {total} query heads of all layers {count} cannot go: at least"
            f" {least}, and at most {most}, since each layer keeps one"
        )
    return count


def pruned_in(request: ConversionRequest) -> HeadsOfLayers:
    """The heads that go, of a request that is settled."""
    assert request.pruned_heads is None or isinstance(request.pruned_heads, Mapping)
    return request.pruned_heads or {}


def _chosen(
    source: ConversionSource, request: ConversionRequest, choose: "Choose"
) -> tuple[HeadsOfLayers, HeadImportance]:
    if request.calibration is None:
        from .weights import importance_by_weights

        importance = importance_by_weights(source)
        return choose(importance.scores, Fraction(1)), importance
    from headcount.running.placement import resolve_device

    from .by_text import (
        ScoredText,
        pruned_by_text,  # imports transformers, which other plans do without
    )

    tokens = request.calibration_tokens or CALIBRATION_TOKENS
    text = ScoredText(
        name=request.calibration,
        tokens=tokens,
        seed=request.seed,
        row_tokens=request.calibration_row_tokens,
        device=resolve_device(request.device),
    )
    return pruned_by_text(source, text, choose)
