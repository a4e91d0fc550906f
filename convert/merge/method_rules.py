"""What is known of each method of merging beside the heads that it makes: one entry a method. Plans
say it, too, so that nothing here needs torch."""

from collections.abc import Mapping
from dataclasses import dataclass

from .ladder import MergeMethod


@dataclass(frozen=True, kw_only=True, slots=True)
class MethodRules:
    """`turns`: heads are turned towards each other where they may be. `undone_by_norms`: where a
    norm follows on each head, it is the mean. `centres_keys`: keys about 0 are kept where the bias
    is free. `reads_apart`: each query head reads the shared value by what it mixes itself."""

    turns: bool = False
    undone_by_norms: bool = False
    centres_keys: bool = False
    reads_apart: bool = False


METHOD_RULES: Mapping[MergeMethod, MethodRules] = {
    "mean": MethodRules(undone_by_norms=True),
    "renorm": MethodRules(undone_by_norms=True),
    "align": MethodRules(turns=True),
    "merge": MethodRules(turns=True, centres_keys=True, reads_apart=True),
}
