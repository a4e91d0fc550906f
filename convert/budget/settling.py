"""A request with a budget of bytes as one that says what each layer gets."""

from dataclasses import replace

from ..latent.size import LayerRanks
from ..plan.request import ConversionRequest, KeyValueHeads
from ..plan.source import ConversionSource
from .search_result import BudgetSearch


def within_budget(
    source: ConversionSource, request: ConversionRequest
) -> tuple[ConversionRequest, BudgetSearch | None]:
    """The request with K/V heads or ranks by layer, and how they were found; as it is where no
    budget is given. A text that only the search reads is gone from it. Raises HeadcountError."""
    budget = request.cache_budget
    if budget is None:
        return request, None
    from .search import searched  # imports transformers, which other plans do without

    found = searched(source, request, budget)
    if found.kind == "latent_rank":
        return replace(request, latent=LayerRanks(found.sizes), cache_budget=None), found
    text = None if request.ladder is None else request.calibration
    return replace(
        request,
        num_key_value_heads=_counts(found),
        calibration=text,
        calibration_tokens=None if text is None else request.calibration_tokens,
        calibration_row_tokens=None if text is None else request.calibration_row_tokens,
        calibration_device=None if request.ladder is None else request.calibration_device,
        cache_budget=None,
    ), found


def _counts(found: BudgetSearch) -> KeyValueHeads:
    counts = set(found.sizes.values())
    return counts.pop() if len(counts) == 1 else dict(found.sizes)
