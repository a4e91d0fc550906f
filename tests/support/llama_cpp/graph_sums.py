"""Of a tensor that is as large as no product of sizes: sides that are sums of them.

A side may be what tokens bring and what is kept of each sequence (T + 128 x S): its bytes are a
sum of products then.
"""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations, product
from math import prod

# What sums are of; "" is one
_NAMES = ("T", "S", "C", "W", "CR", "O", "R", "T/S", "K", "NB", "NL", "PN", "PP", "PS", "")
_MOST = 3  # that a side is the sum of
Term = tuple[int, tuple[str, ...]]


def summed(sizes: Sequence[Mapping[str, int]], tensors: Sequence[tuple[int, list[int]]]) -> str:
    """Of the bytes and sides of a tensor in several starts, whose `sizes` are known; empty where no
    sum fits."""
    elements = {Fraction(nbytes, prod(sides)) for nbytes, sides in tensors}
    if len(elements) > 1 or min(elements) < 1:
        return ""
    terms: list[Term] = [(int(elements.pop()), ())]
    for side in zip(*(sides for _, sides in tensors), strict=True):
        found = next(_sums(sizes, side), None)
        if found is None:
            return ""
        terms = [(a * b, (*x, *y)) for (a, x), (b, y) in product(terms, found)]
    return "+".join("*".join((str(factor), *names)) for factor, names in terms)


def _sums(sizes: Sequence[Mapping[str, int]], side: Sequence[int]) -> Iterator[list[Term]]:
    """Those of the fewest terms first."""
    if len(set(side)) == 1:
        yield [(side[0], ())]
    common = [
        name for name in (*_NAMES, *sorted(sizes[0])) if all(name in s or not name for s in sizes)
    ]
    for name in dict.fromkeys(common):
        values = [one[name] if name else 1 for one in sizes]
        if (
            values[0]
            and side[0] % values[0] == 0
            and all(s * values[0] == side[0] * v for s, v in zip(side, values, strict=True))
        ):
            yield [(side[0] // values[0], (name,) if name else ())]
    names = [name for name in _NAMES if name in common]
    for count in range(2, _MOST + 1):
        for some in combinations(names, count):
            rows = [[one[name] if name else 1 for name in some] for one in sizes]
            if (factors := _solved(rows, side)) is not None:
                yield [(f, (n,) if n else ()) for f, n in zip(factors, some, strict=True)]


def _solved(rows: Sequence[Sequence[int]], side: Sequence[int]) -> list[int] | None:
    """Whole factors above zero with which all `rows` give `side`, if there is one such choice."""
    count, left = (
        len(rows[0]),
        [[*map(Fraction, row), Fraction(s)] for row, s in zip(rows, side, strict=True)],
    )
    for column in range(count):
        pivot = next((row for row in left[column:] if row[column]), None)
        if pivot is None:
            return None
        left.remove(pivot)
        pivot = [value / pivot[column] for value in pivot]
        left = [[a - row[column] * b for a, b in zip(row, pivot, strict=True)] for row in left]
        left.insert(column, pivot)
    if any(row[-1] for row in left[count:]):
        return None
    factors = [row[-1] for row in left[:count]]
    whole = all(f.denominator == 1 and f > 0 for f in factors)
    return [int(f) for f in factors] if whole else None
