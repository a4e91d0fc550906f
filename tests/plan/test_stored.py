"""Bits per parameter of quantised checkpoints, and the sizes of published ones."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from headcount.arch.read_config import read_config
from headcount.model.errors import InvalidConfigError
from headcount.plan.plan import Plan, plan_model
from headcount.plan.planned_model import PlannedModel
from headcount.plan.request import PlanRequest
from headcount.plan.stored import stored_format
from headcount.plan.weights import Weights

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


def planned(*, tied: bool, **quantisation: Any) -> Weights:
    """Of a Llama with a table of 100 x 64 and weights of 8 bits."""
    config = {
        **{"model_type": "llama", "hidden_size": 64, "intermediate_size": 48, "vocab_size": 100},
        **{"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2},
        **{"tie_word_embeddings": tied, "quantization_config": {"quant_method": "fp8"}},
    }
    config["quantization_config"] |= quantisation
    reading = read_config(config, "config.json")
    spec = replace(reading.spec, parameters=reading.parameters())
    model = PlannedModel(model_id="model", spec=spec, config=config)
    weights = plan_model(model, PlanRequest()).weights
    assert weights is not None
    return weights


ATTENTION = 2 * (64 * 64 + 2 * 64 * 32 + 64 * 64)
MLPS = 2 * 3 * 64 * 48
NORMS = 5 * 64  # of 8 bits here too: an estimate does not know them apart
TABLE = 100 * 64


@pytest.mark.parametrize(("tied", "tables"), [(True, 1), (False, 2)])
def test_a_table_stays_at_16_bits_and_a_tied_one_is_there_once(tied: bool, tables: int) -> None:
    weights = planned(tied=tied)
    assert weights.total_bytes == ATTENTION + MLPS + NORMS + tables * 2 * TABLE
    assert weights.embedding_bytes == (0 if tied else 2 * TABLE)  # a tied one is read as the head


@pytest.mark.parametrize(("tied", "tables"), [(True, 1), (False, 2)])
def test_so_does_attention_that_is_not_converted(tied: bool, tables: int) -> None:
    weights = planned(tied=tied, modules_to_not_convert=["self_attn"])
    assert weights.total_bytes == 2 * ATTENTION + MLPS + NORMS + tables * 2 * TABLE
