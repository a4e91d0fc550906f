"""Groups of similar heads: the best of all where that is claimed, and planted duplicates found."""

from dataclasses import replace
from itertools import combinations, permutations

import pytest

torch = pytest.importorskip("torch")

from headcount.convert.merge.grouping import (  # noqa: E402
    cheapest_groups,
    grouping_costs,
    neighbour_groups,
    similar_groups,
)
from headcount.convert.merge.head_moments import white_moments  # noqa: E402
from headcount.convert.merge.merging import merge_attention  # noqa: E402
from small_attention import (  # noqa: E402
    Shape,
    drawn_inputs,
    measured_moments,
    random_weights,
)

pytestmark = pytest.mark.needs_convert


def partitions(heads, sizes):
    """All partitions of `heads` into sets of `sizes`, by brute force."""
    found = set()
    for order in permutations(heads):
        parts, start = [], 0
        for size in sizes:
            parts.append(tuple(sorted(order[start : start + size])))
            start += size
        found.add(tuple(sorted(parts)))
    return found


def total_error(weights, shape, groups, moments):
    merged = merge_attention(weights, shape.freedom, groups, moments, "merge")
    return merged.key_error + merged.value_error


@pytest.mark.parametrize(
    ("shape", "sizes"),
    [
        (Shape(heads=6, kv_heads=6, rotated=6), (2, 2, 2)),
        (Shape(heads=12, kv_heads=6, rotated=2, bias=True), (3, 3)),
        (Shape(heads=5, kv_heads=5, v_head_dim=4), (3, 2)),
        (Shape(heads=8, kv_heads=8, head_dim=4, rotated=4, v_head_dim=3, hidden=12), (4, 4)),
    ],
)
def test_the_best_partition_of_all(shape, sizes):
    weights, x = random_weights(shape, 3), drawn_inputs(shape, 4)
    moments = measured_moments(weights, x)
    found = similar_groups(weights, shape.freedom, moments, len(sizes))
    errors = {
        groups: total_error(weights, shape, groups, moments)
        for groups in partitions(range(shape.kv_heads), sizes)
    }
    best = min(errors.values())
    assert sorted(map(len, found), reverse=True) == list(sizes)
    assert errors[tuple(map(tuple, found))] == pytest.approx(best, abs=1e-8)
    assert max(errors.values()) > best + 0.01


@pytest.mark.parametrize("sizes", [(2, 2, 2), (3, 3)])
def test_the_best_partition_of_two_attentions_together(sizes):
    shape = Shape(heads=6, kv_heads=6, rotated=2)
    both = [(random_weights(shape, seed), drawn_inputs(shape, 4)) for seed in (3, 5)]
    known = [(weights, measured_moments(weights, x)) for weights, x in both]
    one, other = (grouping_costs(w, shape.freedom, m, len(sizes)) for w, m in known)
    found = cheapest_groups(one + other)
    errors = {
        groups: sum(total_error(weights, shape, groups, moments) for weights, moments in known)
        for groups in partitions(range(6), sizes)
    }
    assert errors[tuple(map(tuple, found))] == pytest.approx(min(errors.values()), abs=1e-8)
    assert [cheapest_groups(costs) for costs in (one, other)] != [found, found]


@pytest.mark.parametrize("apart", [1.0, 1e-2, 1e-5, 0.0])
def test_costs_of_wide_heads_are_those_of_the_merge(apart):
    """Eigenvalues in float32 would lose what heads that are nearly alike lose."""
    shape = Shape(heads=4, kv_heads=4, head_dim=72, v_head_dim=72, hidden=160)
    one, other = random_weights(shape, 3), random_weights(shape, 4)
    pairs = [0, 0, 2, 2]
    near = replace(
        one,
        k=one.k[pairs] + apart * other.k,
        v=one.v[pairs] + apart * other.v,
    )
    weights = replace(near, **{n: getattr(near, n).double() for n in ("q", "k", "v", "o")})
    moments = white_moments(weights)
    costs = grouping_costs(weights, shape.freedom, moments, 2).of_size[2].tolist()
    for members, cost in zip(combinations(range(4), 2), costs, strict=True):
        alone = [[head] for head in range(4) if head not in members]
        lost = total_error(weights, shape, [members, *alone], moments)
        assert cost == pytest.approx(lost, rel=1e-5, abs=1e-13)


def with_twins(weights, twin_of):
    """Every K/V head a copy of one of fewer, with the query heads and outputs it had."""
    return replace(weights, k=weights.k[twin_of], v=weights.v[twin_of])


@pytest.mark.parametrize(("heads", "count"), [(8, 4), (12, 3), (32, 8), (32, 16), (30, 8)])
@pytest.mark.parametrize("rotated", [0, 4])
def test_planted_twins_are_found(heads, count, rotated):
    shape = Shape(heads=heads, kv_heads=heads, head_dim=4, v_head_dim=4, rotated=rotated, hidden=60)
    mixed = torch.randperm(heads, generator=torch.Generator().manual_seed(heads)).tolist()
    planted = [[mixed[i] for i in members] for members in neighbour_groups(heads, count)]
    first = {head: members[0] for members in planted for head in members}
    weights = with_twins(random_weights(shape, 5), [first[head] for head in range(heads)])
    found = similar_groups(weights, shape.freedom, white_moments(weights), count)
    assert found == sorted(sorted(members) for members in planted)


def test_heads_that_keep_their_places_are_grouped_with_their_neighbours():
    shape = Shape(heads=5, kv_heads=5)
    weights = with_twins(random_weights(shape, 5), [0, 1, 0, 1, 0])
    fixed = replace(shape.freedom, order=False)
    moments = white_moments(weights)
    assert similar_groups(weights, fixed, moments, 2) == [[0, 1, 2], [3, 4]]
    assert similar_groups(weights, shape.freedom, moments, 2) == [[0, 2, 4], [1, 3]]
    with pytest.raises(ValueError, match="keep their places"):
        merge_attention(weights, fixed, [[0, 2, 4], [1, 3]], moments, "merge")


@pytest.mark.parametrize("count", [0, 6])
def test_a_number_of_groups_that_cannot_be(count):
    shape = Shape(heads=5, kv_heads=5)
    weights = random_weights(shape, 5)
    with pytest.raises(ValueError, match="5 K/V heads do not make"):
        similar_groups(weights, shape.freedom, white_moments(weights), count)
