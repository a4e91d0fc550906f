"""Tensor parallelism: what is split, what is copied, and which numbers of ranks are refused."""

from collections.abc import Callable

import pytest

from config_specs import read_spec
from headcount.model.errors import HeadcountError, InvalidConfigError
from headcount.model.spec import ModelSpec
from headcount.plan.parallel import replicated_parameters, valid_tp
from headcount.plan.plan import Plan
from headcount.plan.replication import replication

MakePlan = Callable[..., Plan]
ReadSpec = Callable[[str], ModelSpec]


def test_heads_are_split_until_each_rank_has_one_and_then_copied(plan: MakePlan) -> None:
    """Qwen3-235B: 94 layers, 64 heads on 4 K/V heads of 128, hidden size 4,096."""
    one = plan("qwen3-235b-a22b", context=1000)
    whole = one.pool.needed(1000, 1)
    assert whole == 192_512 * 1000
    assert replication(one).copies == 1
    for tp, divided_by, copies in ((2, 2, 1), (4, 4, 1), (8, 4, 2), (16, 4, 4)):
        found = plan("qwen3-235b-a22b", context=1000, tp=tp)
        waste = replication(found)
        assert found.pool.needed(1000, 1) == whole // divided_by
        assert waste.copies == copies
        assert waste.cache_bytes == (copies - 1) * whole
        assert waste.num_key_value_heads == max(1, 4 // tp)
        assert waste.num_attention_heads == 64 // tp
        projections = 94 * 2 * 4 * 128 * 4096
        assert waste.weights_bytes == 2 * (copies - 1) * projections
        held = tp * found.weights_bytes
        assert 0 <= held - (2 * 235_093_634_560 + waste.weights_bytes) < tp


def test_a_latent_is_kept_by_every_rank(plan: MakePlan) -> None:
    """DeepSeek-V3: 61 layers; q_a is 7168 x 1536, kv_a 7168 x (512 + 64), on every rank."""
    one = plan("deepseek-v3", context=4096).pool.needed(4096, 1)
    for tp in (2, 8, 16):
        found = plan("deepseek-v3", context=4096, tp=tp)
        assert found.pool.needed(4096, 1) == one == 70_272 * 4096
        assert replication(found).cache_bytes == (tp - 1) * one
        down = 61 * 7168 * (1536 + 512 + 64)
        assert replicated_parameters(found.spec, tp) == (tp - 1) * down


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("llama-3-8b", (1, 2, 4, 8, 16, 32)),  # 32 heads, 8 K/V
        ("qwen2.5-7b", (1, 2, 4, 28)),  # 28, 4: at 7 and 14 the 4 cannot be spread evenly
        ("falcon-7b", (1, 71)),  # 71, 1
        ("gpt2", (1, 2, 3, 4, 6, 12)),
        ("deepseek-v3", (1, 2, 4, 8, 16, 32, 64, 128)),
        ("gemma-4-26b-a4b", (1, 2, 4, 8, 16)),  # 16 heads; 8 K/V in windows, 2 in full layers
    ],
)
def test_valid_tp(read_model: ReadSpec, name: str, valid: tuple[int, ...]) -> None:
    assert valid_tp(read_model(name)) == valid


def test_valid_tp_must_suit_every_layer() -> None:
    """A BART whose encoder has 6 heads and whose decoder has 4."""
    config = {
        "model_type": "bart",
        "d_model": 24,
        "encoder_attention_heads": 6,
        "decoder_attention_heads": 4,
        "encoder_layers": 1,
        "decoder_layers": 1,
    }
    spec = read_spec(config, "here")
    assert valid_tp(spec) == (1, 2)


@pytest.mark.parametrize("tp", [3, 64, 1000])
def test_a_tp_that_does_not_divide_is_refused_with_the_valid_ones(plan: MakePlan, tp: int) -> None:
    with pytest.raises(HeadcountError) as caught:
        plan("llama-3-8b", tp=tp)
    message = str(caught.value)
    assert f"tp {tp} " in message
    assert "32 attention heads and 8 K/V heads" in message
    assert message.endswith("valid are 1, 2, 4, 8, 16, 32")


@pytest.mark.parametrize(
    ("name", "value"),
    [("num_attention_heads", 10**9), ("num_key_value_heads", 10**9), ("num_hidden_layers", 2001)],
)
def test_what_no_model_has_is_refused_at_once(name: str, value: int) -> None:
    with pytest.raises(InvalidConfigError, match=f"{name} is {value}; it must be from 1 to"):
        read_spec({"model_type": "llama", "head_dim": 4, name: value}, "here")


def test_one_rank_holds_everything_once(plan: MakePlan) -> None:
    waste = replication(plan("google/gemma-3-27b-it"))
    assert (waste.ranks, waste.copies, waste.cache_bytes, waste.weights_bytes) == (1, 1, 0, 0)
