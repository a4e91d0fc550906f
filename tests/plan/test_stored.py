"""Bits per parameter of quantised checkpoints, and the sizes of published ones."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from headcount.model.errors import InvalidConfigError
from headcount.plan.plan import Plan
from headcount.plan.stored import stored_format

MakePlan = Callable[..., Plan]
INT4_GROUPS = {"group_0": {"weights": {"num_bits": 4, "group_size": 32, "symmetric": True}}}


@pytest.mark.parametrize(
    ("settings", "bits"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 8 + Fraction(32, 128 * 128)),
        ({"quant_method": "fp8"}, Fraction(8)),
        ({"quant_method": "mxfp4"}, Fraction(17, 4)),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, 4 + Fraction(20, 128)),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 4 + Fraction(20, 128)),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, Fraction(8)),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, Fraction(9, 2)),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, Fraction(8)),
        (
            {"quant_method": "compressed-tensors", "config_groups": INT4_GROUPS},
            4 + Fraction(16, 32),
        ),
    ],
)
def test_bits_per_parameter(settings: dict[str, Any], bits: Fraction) -> None:
    found = stored_format({"quantization_config": settings})
    assert found is not None
    assert found.bits == bits
    assert stored_format({"text_config": {"quantization_config": settings}}) == found


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"quantization_config": None},
        {"quantization_config": "fp8"},
        {"quantization_config": {}},
        {"quantization_config": {"quant_method": "of next year"}},
        {"quantization_config": {"quant_method": "gptq", "bits": "four"}},
        {"quantization_config": {"quant_method": "compressed-tensors", "config_groups": []}},
        {"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {}}},
    ],
)
def test_what_is_not_understood_has_no_format(config: dict[str, Any]) -> None:
    assert stored_format(config) is None


@pytest.mark.parametrize("value", [5, True, {"a": 1}, [None]])
@pytest.mark.parametrize("key", ["modules_to_not_convert", "ignore"])
def test_modules_that_are_no_list_of_names_are_refused(key: str, value: object) -> None:
    settings = {"quant_method": "mxfp4", key: value}
    with pytest.raises(InvalidConfigError, match=f"{key} is .*a list of names"):
        stored_format({"quantization_config": settings})


def test_a_lone_name_is_a_list_of_one() -> None:
    settings = {"quant_method": "mxfp4", "modules_to_not_convert": "self_attn"}
    kept = stored_format({"quantization_config": settings})
    assert kept is not None and not kept.quantises_attention


def test_attention_that_is_kept_wide_is_noticed() -> None:
    settings = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}
    kept = stored_format({"quantization_config": settings})
    assert kept is not None and not kept.quantises_attention


@pytest.mark.parametrize(
    ("name", "published", "tolerance"),
    [  # bytes of all tensors, from the published indices
        ("gpt-oss-120b", 65_248_815_744, 0.002),
        ("gpt-oss-20b", 13_761_264_768, 0.002),
        ("kimi-k2", 1_029_173_256_720, 0.002),
        ("kimi-k2.5", 595_148_192_736, 0.01),  # keeps shared experts and a dense layer wide too
    ],
)
def test_estimates_are_near_published_checkpoints(
    plan: MakePlan, name: str, published: int, tolerance: float
) -> None:
    weights = plan(name).weights
    assert weights.source == "quantised"
    assert weights.total_bytes == pytest.approx(published, rel=tolerance)
