"""From a budget of bytes to what each layer gets of it.

What each layer alone costs at each of some sizes is measured, and the sizes that cost least
together are taken, as if costs added up. With text both these and equal shares are then measured as
a whole, so that what is found is never worse there than equal shares are.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import gcd

import torch

from headcount.running.built.meta_model import build_on_meta

from ..latent.by_weights import known_inputs
from ..latent.size import CacheBudget
from ..least_cost import Costs
from ..merge.ladder import MERGE_METHODS, Ladder
from ..plan.request import ConversionRequest
from ..plan.source import ConversionSource
from ..rewrite.uncalibrated import finite
from ..stream.reader import SourceReader
from .allotment import falling, filled, least_cost
from .choices import Choices, choices_of
from .search_result import BudgetSearch, TogetherCost, rounded
from .trials import Trials, passes_bar, trials_on_text
from .variants import FewerHeads, Inputs, SmallerLatents, Variants

# Sums of ranks that are told apart: beyond it ranks are multiples of a step.
_MOST_SUMS = 4096


@torch.no_grad()
def searched(
    source: ConversionSource, request: ConversionRequest, budget: CacheBudget
) -> BudgetSearch:
    """The K/V heads or ranks of each layer within `budget`. Reads weights and, where there is one,
    the calibration text. Raises HeadcountError."""
    choices = choices_of(source, request, budget)
    by = _by_weights if request.calibration is None else _by_text
    return by(source, request, choices)


def _by_weights(
    source: ConversionSource, request: ConversionRequest, choices: Choices
) -> BudgetSearch:
    with SourceReader(source.checkpoint.files) as reader:
        classes = build_on_meta(source.config)
        read = finite(reader)

        def inputs(where: tuple[int, bool], width: int) -> torch.Tensor:
            return known_inputs(source, classes, where, width, read)

        variants = _variants(source, request, choices, reader, inputs)
        costs = {
            index: {size: variants.of(index, size).error for size in one.sizes[:-1]}
            for index, one in choices.layers.items()
        }
    return _found(choices, costs)


def _by_text(
    source: ConversionSource, request: ConversionRequest, choices: Choices
) -> BudgetSearch:
    with (
        trials_on_text(source, request) as trials,
        SourceReader(source.checkpoint.files) as reader,
    ):
        variants = _variants(source, request, choices, reader, trials.inputs)
        costs, passes = _alone(trials, variants, choices)
        found = _found(choices, costs)
        pair = [_rounded(trials.together(variants, s)) for s in (found.sizes, found.equal)]
        return replace(
            _better(found, choices, *pair),
            criterion="text",
            sha256=trials.sha256,
            tokens=trials.tokens,
            forward_passes=passes + 2,
            together=pair[0],
            equal_together=pair[1],
        )


def _better(
    found: BudgetSearch, choices: Choices, by_layer: TogetherCost, equal: TogetherCost
) -> BudgetSearch:
    """Equal shares where these cost less after all."""
    if by_layer.kl_divergence <= equal.kl_divergence:
        return found
    return replace(found, sizes=found.equal, reached=_reached(choices, found.equal))


def _variants(
    source: ConversionSource,
    request: ConversionRequest,
    choices: Choices,
    reader: SourceReader,
    inputs: Inputs,
) -> Variants:
    if choices.kind == "latent_rank":
        return SmallerLatents(source, finite(reader), inputs)
    method = next(known for known in MERGE_METHODS if known == request.method)
    return FewerHeads(source, Ladder(method=method, grouping=request.grouping, seed=request.seed))


def _alone(trials: Trials, variants: Variants, choices: Choices) -> tuple[dict[int, Costs], int]:
    """What each layer costs at each size but its last, which changes nothing; and how many passes
    over the text that took."""
    count = 1 + max(choices.layers)
    passes = {
        index: len(one.sizes[:-1]) * (count - index) / count
        for index, one in choices.layers.items()
    }
    costs: dict[int, Costs] = {}
    with passes_bar(sum(passes.values())) as bar:
        for index, one in choices.layers.items():
            costs[index] = trials.alone(index, variants, one.sizes[:-1])
            bar.update(passes[index])
    return costs, round(sum(passes.values()))


def _found(choices: Choices, measured: Mapping[int, Costs]) -> BudgetSearch:
    costs = {
        index: {**{s: rounded(c) for s, c in measured[index].items()}, one.sizes[-1]: 0.0}
        for index, one in choices.layers.items()
    }
    sizes = _least(choices, {index: falling(of_layer) for index, of_layer in costs.items()})
    return BudgetSearch(
        kind=choices.kind,
        criterion="weights",
        asked=choices.nbytes(choices.wanted),
        source=choices.nbytes(choices.kept),
        reached=_reached(choices, sizes),
        sizes=sizes,
        equal=choices.equal,
        costs=costs,
    )


def _least(choices: Choices, costs: Mapping[int, Costs]) -> dict[int, int]:
    """The sizes that cost least within the budget."""
    if choices.kind == "latent_rank":
        step = -(-choices.wanted // _MOST_SUMS)
        costs = {index: filled(of_layer, step) for index, of_layer in costs.items()}
    kept = {
        index: {size * choices.layers[index].elements: cost for size, cost in of_layer.items()}
        for index, of_layer in costs.items()
    }
    unit = gcd(*(elements for of_layer in kept.values() for elements in of_layer))
    units = [{e // unit: cost for e, cost in of_layer.items()} for of_layer in kept.values()]
    taken = least_cost(units, choices.wanted // unit)
    pairs = zip(kept, taken, strict=True)
    return {index: n * unit // choices.layers[index].elements for index, n in pairs}


def _reached(choices: Choices, sizes: Mapping[int, int]) -> int:
    return choices.nbytes(choices.elements(sizes))


def _rounded(one: TogetherCost) -> TogetherCost:
    return TogetherCost(
        delta_loss=rounded(one.delta_loss), kl_divergence=rounded(one.kl_divergence)
    )
