"""The maths of pooling, on numbers small enough to work out by hand."""

import pytest
import torch

from headcount.arch.tensors.blocks import Block, Blocks, interleaved, one_part, query_key_value
from headcount.convert.stream.head_layout import join_heads, split_heads
from headcount.convert.stream.pooling import (
    NotFiniteError,
    Runs,
    central_heads,
    first_heads,
    pool_heads,
    random_heads,
    spread,
)
from headcount.convert.stream.weight_file import relative_error

pytestmark = pytest.mark.needs_convert


def heads(*values: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """One head of one number per value."""
    return torch.tensor(values, dtype=dtype).reshape(-1, 1, 1)


def medoids(keys: torch.Tensor, values: torch.Tensor, runs: Runs) -> tuple[int, ...]:
    return central_heads([spread(keys, runs), spread(values, runs)])


def test_mean_by_hand() -> None:
    pooled = pool_heads(heads(1, 3, 10, 20), 2, None)
    assert pooled.heads.flatten().tolist() == [2, 15]
    assert pooled.distance == pytest.approx((1 + 1 + 25 + 25) ** 0.5)
    assert pooled.norm == pytest.approx((1 + 9 + 100 + 400) ** 0.5)
    assert relative_error(pooled) == pytest.approx((52 / 510) ** 0.5, rel=1e-3)


def test_chosen_heads_by_hand() -> None:
    pooled = pool_heads(heads(1, 3, 10, 20), 2, (1, 2))
    assert pooled.heads.flatten().tolist() == [3, 10]
    assert pooled.distance == pytest.approx((4 + 100) ** 0.5)


def test_runs_of_several_lengths_by_hand() -> None:
    values = heads(1, 3, 8, 10, 30)
    assert pool_heads(values, (3, 2), None).heads.flatten().tolist() == [4, 20]
    assert pool_heads(values, (3, 2), (1, 4)).heads.flatten().tolist() == [3, 30]
    assert first_heads((3, 2)) == (0, 3)
    assert medoids(values, values, (3, 2)) == (1, 3)
    drawn = [random_heads((3, 2), seed=seed, layer=0) for seed in range(9)]
    assert {last for _, last in drawn} == {3, 4}


def test_groups_are_contiguous() -> None:
    """Head j of the result comes of heads [2j, 2j + 2), not of j and j + 3."""
    assert pool_heads(heads(0, 2, 10, 12, 100, 102), 2, None).heads.flatten().tolist() == [
        *(1, 11, 101),
    ]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("members", [2, 3, 7, 8, 71])
def test_the_mean_of_equal_heads_is_exact(dtype: torch.dtype, members: int) -> None:
    torch.manual_seed(0)
    head = torch.randn(1, 8, 40).to(dtype)
    pooled = pool_heads(head.expand(members, 8, 40), members, None)
    assert pooled.heads.dtype == dtype
    assert torch.equal(pooled.heads, head)
    assert relative_error(pooled) == 0


def test_the_mean_of_three_equal_float64_heads_keeps_its_last_bit() -> None:
    value = (2**52 + 2**51 + 2) / 2**52  # three times this lies between two numbers
    assert (value + value + value) / 3 != value
    pooled = pool_heads(heads(value, value, value, dtype=torch.float64), 3, None)
    assert pooled.heads.item() == value and pooled.distance == 0


def test_the_mean_is_rounded_once() -> None:
    """In bfloat16, 1 + 2^-8 is not a number: sums made there would lose the small terms."""
    values = heads(1, 2**-8, 1, 2**-8, dtype=torch.bfloat16)
    wide = torch.tensor((2 + 2 * 2**-8) / 4).to(torch.bfloat16)
    assert pool_heads(values, 4, None).heads.item() == wide.item()


def test_first_and_random_choose_in_their_groups() -> None:
    assert first_heads((4, 4, 4)) == (0, 4, 8)
    for seed in range(20):
        chosen = random_heads((4, 4, 4), seed=seed, layer=seed)
        assert [head // 4 for head in chosen] == [0, 1, 2]


def test_random_depends_on_seed_and_layer_only() -> None:
    drawn = {
        (seed, layer): random_heads((8,) * 8, seed=seed, layer=layer)
        for seed in range(4)
        for layer in range(4)
    }
    assert len(set(drawn.values())) == 16
    assert random_heads((8,) * 8, seed=0, layer=0) == drawn[0, 0]
    # As it was when this test was written: the same on every machine and version of Python.
    assert random_heads((4,) * 4, seed=7, layer=3) == (2, 7, 11, 12)


def test_medoid_is_the_member_nearest_to_the_others() -> None:
    keys = heads(0, 5, 9, 1, 2, 30)
    assert medoids(keys, keys, 3) == (1, 4)


def test_key_and_value_choose_the_medoid_together() -> None:
    """K alone would take head 1 and V alone head 2; scaling V changes nothing."""
    keys, values = heads(0, 4, 9), heads(0, 9, 4.3)
    assert medoids(keys, keys, 3) == (1,)
    assert medoids(values, values, 3) == (2,)
    assert medoids(keys, values, 3) == medoids(keys, 1000 * values, 3)


def test_of_equal_medoids_the_first_is_taken() -> None:
    torch.manual_seed(0)
    pairs = torch.randn(8, 16, 32)
    assert medoids(pairs, pairs.flip(1), 2) == (0, 2, 4, 6)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("chosen", [None, (0,)])
def test_bad_values_are_refused(value: float, chosen: tuple[int, ...] | None) -> None:
    with pytest.raises(NotFiniteError, match="NaN or infinity"):
        pool_heads(heads(1, value), 2, chosen)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("chosen", [None, (1,)])
def test_the_largest_numbers_are_pooled(dtype: torch.dtype, chosen: tuple[int, ...] | None) -> None:
    """The sum of two does not fit in the type, nor in float32 for bfloat16, but the mean does."""
    largest = torch.finfo(dtype).max
    pooled = pool_heads(heads(largest, largest, dtype=dtype), 2, chosen)
    assert pooled.heads.item() == largest
    assert relative_error(pooled) == 0


def test_overflow_of_a_float64_sum_is_refused() -> None:
    largest = torch.finfo(torch.float64).max
    with pytest.raises(NotFiniteError, match="overflows float64"):
        pool_heads(heads(largest, 0.9 * largest, dtype=torch.float64), 2, None)
    equal = heads(largest, largest, dtype=torch.float64)
    assert pool_heads(equal, 2, None).heads.item() == largest


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_a_chosen_head_is_never_refused_for_its_size(dtype: torch.dtype) -> None:
    largest = torch.finfo(dtype).max
    values = heads(-largest, largest, largest, dtype=dtype)
    assert medoids(values, values, 3) == (1,)
    pooled = pool_heads(values, 3, (1,))
    assert pooled.heads.item() == largest
    assert relative_error(pooled) == pytest.approx(2 / 3**0.5, rel=1e-3)


def test_large_numbers_are_no_overflow() -> None:
    """Their squares do not fit in float32, in which bfloat16 is summed, but the numbers do."""
    pooled = pool_heads(heads(1e30, 3e30, dtype=torch.bfloat16), 2, None)
    assert pooled.heads.item() == pytest.approx(2e30, rel=0.01)
    assert relative_error(pooled) == pytest.approx((2 / 10) ** 0.5, rel=0.01)
    wide = pool_heads(heads(1e200, 3e200, dtype=torch.float64), 2, None)
    assert relative_error(wide) == pytest.approx((2 / 10) ** 0.5, rel=0.01)


@pytest.mark.parametrize("axis", [0, -1])
def test_fused_parts_are_split_and_joined(axis: int) -> None:
    layout = query_key_value(3, 2, axis=axis)
    tensor = torch.arange(18 * 5).reshape(18, 5).movedim(0, axis).contiguous()
    parts = split_heads(tensor, layout)
    assert {part: list(t.shape) for part, t in parts.items()} == {part: [3, 2, 5] for part in "qkv"}
    assert parts["k"][0, 0, 0] == 6 * 5
    assert torch.equal(join_heads(parts, layout), tensor)


def test_interleaved_parts_are_split_and_joined() -> None:
    """CodeGen's four blocks of [q|v|k], two heads of three rows each: heads count through."""
    layout = interleaved(3, repeats=4, query_heads=2, key_value_heads=2, order="qvk")
    tensor = torch.arange(72 * 5).reshape(72, 5)
    parts = split_heads(tensor, layout)
    assert {part: list(t.shape) for part, t in parts.items()} == {part: [8, 3, 5] for part in "qkv"}
    assert [int(parts["v"][head, 0, 0]) // 5 for head in range(4)] == [6, 9, 24, 27]
    assert [int(parts["k"][head, 0, 0]) // 5 for head in range(4)] == [12, 15, 30, 33]
    assert torch.equal(join_heads(parts, layout), tensor)
    assert layout.heads("k") == 8
    assert layout.pooled(4).rows == (8 + 2 + 2) * 3


def test_layouts_say_their_rows_before_and_after() -> None:
    layout = query_key_value(6, 8, axis=-1)
    assert layout.rows == 144
    assert layout.pooled(6) == Blocks(
        blocks=(
            Block(part="q", heads=6, rows=8),
            Block(part="k", heads=1, rows=8),
            Block(part="v", heads=1, rows=8),
        )
    )
    assert one_part("k", 6, 8).pooled(2).rows == 24
