"""The divisors of a number of heads, and how a message lists them."""

from math import isqrt

from . import limits


def divisors(number: int) -> tuple[int, ...]:
    """All divisors of `number` >= 1, in order; O(sqrt(number))."""
    low = [n for n in range(1, isqrt(number) + 1) if number % n == 0]
    high = [number // n for n in reversed(low) if n * n != number]
    return (*low, *high)


def listed(numbers: tuple[int, ...]) -> str:
    """`1, 2, 4`: at most 40 of them, then how many more there are."""
    most = limits.LISTED.most
    shown = ", ".join(map(str, numbers[:most]))
    more = len(numbers) - most
    return f"{shown} and {more} more" if more > 0 else shown
