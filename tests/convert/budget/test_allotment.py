"""Sizes chosen for all layers, against trying every choice."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.convert.budget.allotment import falling, filled, least_cost

pytestmark = pytest.mark.needs_convert

COSTS = st.dictionaries(st.integers(1, 6), st.integers(0, 20), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(st.lists(COSTS, min_size=1, max_size=4), st.integers(1, 20))
def test_no_other_choice_costs_less(layers: list[dict[int, int]], wanted: int) -> None:
    choices = [sizes for sizes in product(*layers) if sum(sizes) <= wanted]
    if not choices:
        with pytest.raises(ValueError, match="do not fit"):
            least_cost(layers, wanted)
        return
    found = least_cost(layers, wanted)
    assert tuple(found) in choices

    def cost(sizes: tuple[int, ...]) -> int:
        return sum(costs[size] for costs, size in zip(layers, sizes, strict=True))

    least = min(map(cost, choices))
    assert cost(tuple(found)) == least
    assert sum(found) == max(sum(sizes) for sizes in choices if cost(sizes) == least)


def test_what_a_measurement_scatters_does_not_rise_with_the_size() -> None:
    assert falling({1: 3.0, 2: 1.0, 4: 2.0, 8: -0.5, 16: 0.0}) == {1: 3, 2: 2, 4: 2, 8: 0, 16: 0}


def test_between_two_sizes_costs_lie_on_a_line_of_logarithms() -> None:
    found = filled({1: 1.0, 3: 0.01, 7: 0.0}, 1)
    assert sorted(found) == [1, 2, 3, 4, 5, 6, 7]
    assert found[2] == pytest.approx(0.1)
    assert found[7] == 0.0 < found[6] < found[5] < found[4] < found[3] == pytest.approx(0.01)
    assert set(filled({1: 1.0, 3: 0.01, 7: 0.0}, 3)) == {3, 6, 7}
