"""What each method of merging makes of the heads of a block of rows: one entry a method."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .ladder import MergeMethod
from .row_blocks import RowBlock
from .shared_head import SharedHead, aligned_head, averaging_head, best_head, weighted_head

# (the block, the scale of `renorm`) -> the head that all of the block share.
HeadMaker = Callable[[RowBlock, float], SharedHead]


@dataclass(frozen=True, kw_only=True, slots=True)
class MethodRules:
    """`mapped` holds where q (or o) takes up what each head loses, `unmapped` where nothing can be
    mapped back.

    `turns`: heads are turned towards each other where they may be. `undone_by_norms`: where a norm
    follows on each head, it is the mean. `centres_keys`: keys about 0 are kept where the bias is
    free. `reads_apart`: each query head reads the shared value by what it mixes itself.
    """

    mapped: HeadMaker
    unmapped: HeadMaker
    turns: bool = False
    undone_by_norms: bool = False
    centres_keys: bool = False
    reads_apart: bool = False


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


METHOD_RULES: Mapping[MergeMethod, MethodRules] = {
    "mean": MethodRules(mapped=mean, unmapped=mean, undone_by_norms=True),
    "renorm": MethodRules(mapped=scaled_mean, unmapped=scaled_mean, undone_by_norms=True),
    "align": MethodRules(mapped=aligned, unmapped=weighted, turns=True),
    "merge": MethodRules(
        mapped=best, unmapped=weighted, turns=True, centres_keys=True, reads_apart=True
    ),
}
