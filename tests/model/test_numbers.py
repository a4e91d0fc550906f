"""What counts as a number in a stranger's JSON, and in a name."""

import math

import pytest

from headcount.model.numbers import digits, finite, size, whole


@pytest.mark.parametrize(
    ("value", "expected"),
    [(560, 560), (560.0, 560), (-2.0, -2), (1e18, 10**18), (10**30, 10**30)]
    + [(value, None) for value in (560.5, "560", True, None, [560], {}, math.nan, math.inf)],
)
def test_whole_numbers(value: object, expected: int | None) -> None:
    found = whole(value)
    assert (type(found), found) == (type(expected), expected)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1, 1), (560.0, 560), (10**9, 10**9)]
    + [(value, None) for value in (0, -1, 10**9 + 1, 10**300, 1e300, "2", True, None, [2])],
)
def test_sizes(value: object, expected: int | None) -> None:
    assert size(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(2, 2.0), (0.5, 0.5), (-1e300, -1e300)]
    + [(value, None) for value in ("2", True, None, [2], math.nan, -math.inf, 10**400)],
)
def test_finite_numbers(value: object, expected: float | None) -> None:
    assert finite(value) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0), ("007", 7), ("999999999", 999_999_999)]
    + [(text, None) for text in ("", "-1", "1.0", " 1", "²", "٣", "1_0", "1234567890", "9" * 5000)],
)
def test_digits(text: str, expected: int | None) -> None:
    assert digits(text) == expected
