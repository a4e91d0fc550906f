"""What devices cost: prices are those that the user gives."""

from collections.abc import Mapping

from .candidates import Candidate

HOURS_A_MONTH = 730  # 365 x 24 / 12

Prices = Mapping[str, float]  # key of a device -> price of a card of it for an hour


def cost(candidate: Candidate, prices: Prices) -> float | None:
    """Of an hour of all its cards; None where their price is not known."""
    price = prices.get(candidate.device.key)
    return None if price is None else price * candidate.cards
