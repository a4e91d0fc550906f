"""The inverse of a plan: the largest context or batch that still fits."""

from collections.abc import Callable
from typing import NamedTuple

UNBOUNDED = 2**40  # more tokens or sequences than any memory's worth: nothing grows


class PlanLimits(NamedTuple):
    """Largest values that fit beside the other one of the plan; 0 where nothing fits.

    None means that memory sets no limit, or that there is none to fit in. `context_is_capped` says
    that not memory but the model's maximum, or a longer context that was asked for, is the limit.
    """

    max_context: int | None = None
    max_batch_size: int | None = None
    context_is_capped: bool | None = None


def largest(fits: Callable[[int], bool], *, ceiling: int | None) -> int | None:
    """The largest n in 1..ceiling that fits, 0 if not even 1 does, None if growth never ends it.

    `fits` must be monotone: what fits n fits everything below.
    """
    if not fits(1):
        return 0
    low, high = 1, 2
    while fits(min(high, ceiling or high)):
        if ceiling is not None and high >= ceiling:
            return ceiling
        if high > UNBOUNDED:
            return None
        low, high = high, 2 * high
    high = min(high, ceiling or high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
