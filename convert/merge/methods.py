"""What each method of merging makes of the heads of a block of rows: one entry a method."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .ladder import MergeMethod
from .row_blocks import RowBlock
from .shared_head import SharedHead, aligned_head, best_head, mean_head, weighted_head

# (the block, the scale of `renorm`) -> the head that all of the block share.
Rule = Callable[[RowBlock, float], SharedHead]


@dataclass(frozen=True, kw_only=True, slots=True)
class MethodRules:
    """`mapped` holds where q (or o) takes up what each head loses, `unmapped` where nothing can be
    mapped back."""

    mapped: Rule
    unmapped: Rule


def mean(block: RowBlock, scale: float) -> SharedHead:
    return mean_head(block.weight)


def scaled_mean(block: RowBlock, scale: float) -> SharedHead:
    return mean_head(block.weight, scale)


def weighted(block: RowBlock, scale: float) -> SharedHead:
    return weighted_head(block.weight)


def aligned(block: RowBlock, scale: float) -> SharedHead:
    return aligned_head(block.covariance, block.members)


def best(block: RowBlock, scale: float) -> SharedHead:
    return best_head(block.weight, block.covariance)


RULES: Mapping[MergeMethod, MethodRules] = {
    "mean": MethodRules(mapped=mean, unmapped=mean),
    "renorm": MethodRules(mapped=scaled_mean, unmapped=scaled_mean),
    "align": MethodRules(mapped=aligned, unmapped=weighted),
    "merge": MethodRules(mapped=best, unmapped=weighted),
}


def solved(block: RowBlock, method: MergeMethod, scale: float) -> SharedHead:
    """The shared head of a method where q may be mapped; `scale` is that of `renorm`."""
    return RULES[method].mapped(block, scale)


def pooled(block: RowBlock, method: MergeMethod, scale: float) -> SharedHead:
    """The shared head of a method where nothing can be mapped back."""
    return RULES[method].unmapped(block, scale)
