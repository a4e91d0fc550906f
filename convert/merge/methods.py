"""What each method of merging makes of the heads of a block of rows: one entry a method. What else
is known of a method stands in `method_rules`, which plans read, too."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .ladder import MergeMethod
from .row_blocks import RowBlock
from .shared_head import SharedHead, aligned_head, averaging_head, best_head, weighted_head

# (the block, the scale of `renorm`) -> the head that all of the block share.
HeadMaker = Callable[[RowBlock, float], SharedHead]


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadMakers:
    """`mapped` holds where q (or o) takes up what each head loses, `unmapped` where nothing can be
    mapped back."""

    mapped: HeadMaker
    unmapped: HeadMaker


def mean(block: RowBlock, scale: float) -> SharedHead:
    return averaging_head(block.weight)


def scaled_mean(block: RowBlock, scale: float) -> SharedHead:
    return averaging_head(block.weight, scale)


def weighted(block: RowBlock, scale: float) -> SharedHead:
    return weighted_head(block.weight)


def aligned(block: RowBlock, scale: float) -> SharedHead:
    return aligned_head(block.covariance, block.members)


def best(block: RowBlock, scale: float) -> SharedHead:
    return best_head(block.weight, block.covariance)


HEAD_MAKERS: Mapping[MergeMethod, HeadMakers] = {
    "mean": HeadMakers(mapped=mean, unmapped=mean),
    "renorm": HeadMakers(mapped=scaled_mean, unmapped=scaled_mean),
    "align": HeadMakers(mapped=aligned, unmapped=weighted),
    "merge": HeadMakers(mapped=best, unmapped=weighted),
}
