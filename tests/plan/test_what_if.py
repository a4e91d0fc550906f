"""Other K/V heads: the rows, and their bytes re-added from the parts of every layer."""

from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headcount.model.errors import HeadcountError
from headcount.model.mixers import Attention
from headcount.plan.devices import find_device
from headcount.plan.plan import Plan
from headcount.plan.what_if.rows import conversions, variant_plans
from headcount.plan.what_if.variants import chain

MakePlan = Callable[..., Plan]


@pytest.mark.parametrize(
    ("heads", "present", "rows"),
    [
        (32, 8, (32, 8, 4, 2, 1)),
        (32, 32, (32, 16, 8, 4, 2, 1)),
        (12, 12, (12, 6, 3, 1)),
        (28, 4, (28, 4, 2, 1)),
        (9, 3, (9, 3, 1)),
        (71, 1, (71, 1)),
        (1, 1, (1,)),
    ],
)
def test_chain(heads: int, present: int, rows: tuple[int, ...]) -> None:
    assert chain(heads, present) == rows


@given(st.integers(1, 300).flatmap(lambda kv: st.tuples(st.just(kv), st.integers(1, 20))))
def test_each_row_of_a_chain_divides_the_one_before(kv_and_group: tuple[int, int]) -> None:
    kv, group = kv_and_group
    rows = chain(kv * group, kv)
    assert rows[0] == kv * group
    assert kv in rows
    assert rows[-1] == 1
    assert all(more % fewer == 0 and fewer < more for more, fewer in pairwise(rows))


@pytest.mark.parametrize("name", ["llama-3-8b", "gpt2", "gemma-2-9b", "opt-2.7b", "qwen2.5-7b"])
def test_rows_are_re_added_from_the_parts(plan: MakePlan, name: str) -> None:
    """gpt2, opt and qwen2.5 have biases on k and v; gemma-2 has windows."""
    found = plan(name, context=5000, batch_size=3)
    spec, budget = found.spec, found.budget
    assert budget is not None and budget.growing is not None and found.weights is not None
    bits = 8 * found.weights.per_attention_parameter
    for row in variant_plans(found):
        assert row.plan is not None
        kv = row.variant.num_key_value_heads
        assert kv is not None
        weights, cache = spec.parameters, 0
        assert weights is not None
        for layer in spec.layers:
            (mixer,) = layer.mixers
            assert isinstance(mixer, Attention)
            parts = mixer.parameters()
            weights -= parts.k + parts.v
            weights += parts.k * kv // mixer.num_key_value_heads
            weights += parts.v * kv // mixer.num_key_value_heads
            kept = min(5000, mixer.window or 5000)
            cache += kept * kv * 2 * mixer.head_dim * found.workload.kv_bits // 8
        assert row.plan.weights_bytes == weights * bits // 8
        assert row.plan.pool.needed(5000, 3) == 3 * cache
        overhead = budget.growing.total_bytes(5000, 3)
        assert row.plan.total_bytes == row.plan.weights_bytes + 3 * cache + overhead
        heads = spec.layers[0].mixers[0].num_attention_heads
        assert row.mha_ratio == pytest.approx(heads / kv)
        assert row.variant.group_size == heads // kv


def test_exactly_one_row_is_the_plan_itself(plan: MakePlan) -> None:
    for name in ("llama-3-8b", "gpt2", "deepseek-v3", "gemma-4-31b", "t5-small"):
        found = plan(name, context=512)
        current = [row for row in variant_plans(found) if row.variant.is_current]
        assert len(current) == 1, name
        assert current[0].plan is not None
        assert current[0].plan is found


def test_kinds_are_named(plan: MakePlan) -> None:
    rows = [
        (r.variant.name, r.variant.num_key_value_heads) for r in variant_plans(plan("llama-3-8b"))
    ]
    assert rows == [("MHA", 32), ("GQA", 8), ("GQA", 4), ("GQA", 2), ("MQA", 1)]


def test_fewer_heads_never_cost_more(plan: MakePlan) -> None:
    found = plan("llama-3-8b", context=8192, device=find_device("rtx-4090"))
    rows = [row.plan for row in variant_plans(found) if row.plan is not None]
    assert len(rows) == 5
    for more, fewer in pairwise(rows):
        assert fewer.total_bytes < more.total_bytes
        assert more.limits is not None and fewer.limits is not None
        assert (fewer.limits.max_batch_size or 0) > (more.limits.max_batch_size or 0)


def test_latent_attention_is_held_against_the_heads_it_expands_to(plan: MakePlan) -> None:
    """DeepSeek-V3: 128 heads of 192 (keys) and 128 (values) against 512 + 64."""
    expanded, latent = variant_plans(plan("deepseek-v3", context=1000, tp=4))
    assert latent.variant.is_current
    assert expanded.plan is not None and latent.plan is not None
    assert expanded.mha_ratio == 1
    assert latent.mha_ratio == pytest.approx(128 * (192 + 128) / (512 + 64))
    # Expanded heads are split over the ranks, the latent is not; the weights are the same.
    assert expanded.plan.pool.needed(1000, 1) == 61 * 1000 * 32 * (192 + 128) * 2
    assert latent.plan.pool.needed(1000, 1) == 61 * 1000 * (512 + 64) * 2
    assert expanded.plan.weights_bytes == latent.plan.weights_bytes


def test_copies_end_what_fewer_heads_save_under_tensor_parallelism(plan: MakePlan) -> None:
    sizes = [
        row.plan.pool.needed(100, 1)
        for row in variant_plans(plan("llama-3-8b", tp=8, context=100))
        if row.plan is not None
    ]
    per_head = 32 * 100 * 256 * 2
    assert sizes == [4 * per_head, per_head, per_head, per_head, per_head]


def test_rows_that_tp_does_not_suit_have_no_memory(plan: MakePlan) -> None:
    """GPT-2 over 4 ranks: 6 and 3 K/V heads can be neither split nor copied evenly."""
    rows = {r.variant.num_key_value_heads: r.plan for r in variant_plans(plan("gpt2", tp=4))}
    assert [kv for kv, planned in rows.items() if planned is None] == [6, 3]


def test_shared_caches_and_uneven_layers_keep_their_shape(plan: MakePlan) -> None:
    """Gemma 4 31B: K/V heads differ between windows and full layers, so only the ends are even."""
    names = [
        (r.variant.name, r.variant.num_key_value_heads) for r in variant_plans(plan("gemma-4-31b"))
    ]
    assert names == [("MHA", None), ("mixed", None), ("MQA", 1)]


def test_stored_bytes_change_in_proportion(plan: MakePlan) -> None:
    """Headers that hold 4 bytes per parameter: k and v projections take 4 bytes each too."""
    found = plan("gpt2", weights_bytes=4 * 124_439_808)
    mqa = variant_plans(found)[-1]
    assert mqa.plan is not None
    removed = 12 * 2 * (768 - 64) * (768 + 1)
    assert mqa.plan.weights_bytes == 4 * (124_439_808 - removed)
    assert mqa.variant.parameters_change == -removed


@pytest.mark.parametrize(
    ("name", "pruned", "rows"),
    [
        ("gpt2", Fraction(1, 4), [("MHA, 9 of 12 query heads", 9, 9)]),
        (
            "llama-3-8b",
            8,
            [("GQA, 24 of 32 query heads", 6, 24), ("GQA, 24 of 32 query heads", 8, 24)],
        ),
    ],
)
def test_rows_without_some_query_heads(
    plan: MakePlan, name: str, pruned: int | Fraction, rows: list[tuple[str, int, int]]
) -> None:
    """Llama 3: whole groups of 4 go, or one head of each; weights and cache are re-added."""
    found = plan(name, context=4000)
    spec, weights = found.spec, found.weights
    assert weights is not None
    without = [row for row in variant_plans(found, pruned) if row.variant.query_heads]
    assert [
        (r.variant.name, r.variant.num_key_value_heads, r.variant.query_heads) for r in without
    ] == rows
    for row in without:
        lost = 0
        for layer in spec.layers:
            (mixer,) = layer.mixers
            assert isinstance(mixer, Attention) and row.variant.query_heads is not None
            query = mixer.num_attention_heads - row.variant.query_heads
            shared = mixer.num_key_value_heads - (row.variant.num_key_value_heads or 0)
            d, width = mixer.head_dim, mixer.hidden_size
            lost += d * (query * (2 * width + mixer.q_bias) + 2 * shared * (width + mixer.k_bias))
        assert row.plan is not None
        change = found.weights_bytes - row.plan.weights_bytes
        assert change == lost * weights.per_attention_parameter
        shared = row.variant.num_key_value_heads or 0
        present = spec.layers[0].mixers[0]
        assert isinstance(present, Attention)
        ratio = shared / present.num_key_value_heads
        assert row.plan.kv_cache_bytes == found.kv_cache_bytes * ratio
    plain, more = (conversions(variant_plans(found, p)) for p in (None, pruned))
    assert [row.variant for row in plain] == [row.variant for row in more]


def test_query_heads_that_cannot_go(plan: MakePlan) -> None:
    with pytest.raises(HeadcountError, match="8 K/V heads, and 1 of them cannot go"):
        variant_plans(plan("llama-3-8b"), 1)
    with pytest.raises(HeadcountError, match="it has no K/V heads"):
        variant_plans(plan("deepseek-v3"), 1)
