"""Numbers that a stranger wrote: in JSON `560.0` is 560, and `true` is none."""

import math

from . import limits


def whole(value: object) -> int | None:
    """`value` if it is an integer, or a float that is one; None for anything else."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if type(value) is int else None


def size(value: object) -> int | None:
    """`value` if it is what a width or a count can be, from 1 on; None for anything else, so that
    no product of some of them is beyond all floats."""
    number = whole(value)
    return number if number is not None and 0 < number <= limits.SIZE.most else None


def finite(value: object) -> float | None:
    """`value` if it is a number that a sum can hold; None for NaN, infinity and anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer beyond all floats
        return None
    return number if math.isfinite(number) else None


def digits(text: str, most: int = 9) -> int | None:
    """The number that `text` writes in up to `most` plain digits; None for anything else. int()
    takes digits of any script, and refuses more than some 4,000 of them."""
    return int(text) if len(text) <= most and text.isascii() and text.isdecimal() else None
