"""How alike two orders are."""

from collections.abc import Sequence


def spearman(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Spearman's rank correlation, from -1 to 1: Pearson's of the ranks, equal values sharing the
    mean of theirs. None where all values of one are equal. ValueError: not as many."""
    pairs = list(zip(_centred_ranks(one), _centred_ranks(other), strict=True))
    covariance = sum(a * b for a, b in pairs)
    spreads = (sum(a * a for a, _ in pairs), sum(b * b for _, b in pairs))
    product = (spreads[0] * spreads[1]) ** 0.5
    return covariance / product if product else None


def _centred_ranks(values: Sequence[float]) -> list[float]:
    order = sorted(values)
    first = {value: order.index(value) for value in set(values)}
    count = {value: order.count(value) for value in first}
    middle = (len(values) - 1) / 2
    return [first[value] + (count[value] - 1) / 2 - middle for value in values]
