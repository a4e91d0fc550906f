"""Which rows of a head rotate, whatever a config says of their share."""

from typing import Any

import pytest

from headcount.convert.rewrite.rotary import rotated_rows


def rows(head_dim: int = 8, **config: Any) -> object:
    return rotated_rows("halves", config, head_dim)


def test_a_share_of_the_rows_rotates() -> None:
    assert rows(rope_parameters={"partial_rotary_factor": 0.5}) == ((0, 1), (2, 3))
    assert rows(rotary_dim=4) == ((0, 1), (2, 3))


@pytest.mark.parametrize("share", [1e9, 1.25, -1, float("inf"), float("nan")])
def test_a_share_that_cannot_be_is_not_known(share: float) -> None:
    assert rows(rope_parameters={"partial_rotary_factor": share}) is None


@pytest.mark.parametrize("count", [10**9, 10, -2])
def test_a_number_that_cannot_be_is_not_known(count: int) -> None:
    assert rows(rotary_dim=count) is None
