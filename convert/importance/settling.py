"""From a number of query heads to prune to the heads themselves."""

from collections.abc import Mapping
from dataclasses import replace

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
from .across_layers import least_of_all
from .head_importance import HeadImportance, least_important
from .weights import importance_by_weights


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
        count = _count_of_all(source, mixers, wanted)
        importance = _importance(source, request)
        pruned = least_of_all(mixers, importance.scores, count)
        return replace(request, pruned_heads=pruned, across_layers=False), importance
    shapes = shapes_to_have(source, wanted)
    importance = _importance(source, request)
    pruned = least_important(mixers, importance.scores, shapes)
    return replace(request, pruned_heads=pruned), importance


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


def _importance(source: ConversionSource, request: ConversionRequest) -> HeadImportance:
    if request.calibration is None:
        return importance_by_weights(source)
    from .by_text import (
        ScoredText,
        importance_by_text,  # imports transformers, which other plans do without
    )

    tokens = request.calibration_tokens or CALIBRATION_TOKENS
    text = ScoredText(
        name=request.calibration,
        tokens=tokens,
        seed=request.seed,
        row_tokens=request.calibration_row_tokens,
    )
    return importance_by_text(source, text)
