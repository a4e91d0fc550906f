"""What vLLM takes of a config by version: types of cache that quantised checkpoints have scales for
(vllm/utils/torch_utils.py and the attention layer), dtypes of states
(vllm/model_executor/models/config.py), and states that checkpoints of a prefill take."""

from typing import Any

import pytest

from headcount.audit.auditing import audit_model, audit_source
from headcount.plan.command import planned
from headcount.plan.devices import find_device
from headcount.plan.engines.vllm.model_rules import default_cache, default_state
from headcount.plan.engines.vllm.pool import VllmPool
from headcount.plan.engines.vllm.states import state_rule
from headcount.plan.engines.vllm.vllm import ENGINE
from headcount.plan.plan import Plan, plan_model
from headcount.plan.request import PlanRequest
from headcount.sources.found import FoundModel

parse_version = ENGINE.releases.parse
FP8 = {"num_bits": 8, "type": "float", "dynamic": False}


@pytest.mark.parametrize(
    ("quantisation", "version", "name"),
    [
        ({"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"}, "0.13.0", None),
        ({"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"}, "0.14.0", "fp8"),
        ({"quant_method": "modelopt_fp4", "kv_cache_scheme": FP8}, "0.32.0", "fp8"),
        (
            {"quant_method": "modelopt", "quantization": {"kv_cache_quant_algo": "FP8"}},
            *("0.32.0", "fp8"),
        ),
        ({"quant_method": "modelopt", "kv_cache_quant_algo": "NVFP4"}, "0.19.0", None),
        ({"quant_method": "modelopt", "kv_cache_quant_algo": "NVFP4"}, "0.20.0", "nvfp4"),
        ({"quant_method": "modelopt", "kv_cache_scheme": {**FP8, "dynamic": True}}, "0.32.0", None),
        ({"quant_method": "modelopt", "kv_cache_quant_algo": "INT8"}, "0.32.0", None),
        ({"quant_method": "modelopt", "kv_cache_scheme": 7}, "0.32.0", None),
        ({"quant_method": "modelopt"}, "0.32.0", None),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": FP8}, "0.14.0", None),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": FP8}, "0.15.0", "fp8"),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": None}, "0.15.0", None),
        ({"quant_method": "awq", "kv_cache_scheme": FP8}, "0.32.0", None),
        (["x"], "0.32.0", None),
    ],
)
def test_quantised_checkpoints_bring_a_type_of_cache(
    quantisation: Any, version: str, name: str | None
) -> None:
    config = {"quantization_config": quantisation}
    assert default_cache("llama", config, parse_version(version)) == name


@pytest.mark.parametrize(
    ("version", "dtype"), [("0.12.0", None), ("0.13.0", "float16"), ("0.20.0", "float32")]
)
def test_states_of_nemotron_h(version: str, dtype: str | None) -> None:
    assert default_state("nemotron_h", parse_version(version)) == dtype
    assert default_state("bamba", parse_version(version)) is None


@pytest.mark.parametrize(
    ("model", "version", "device", "blocks"),
    [
        ("zamba2-2.7b", "0.31.0", "h100", 2),
        ("zamba2-2.7b", "0.32.0", "a100-80gb", 3),
        ("qwen3.5-0.8b", "0.32.0", "h100", 2),
        ("qwen3.5-0.8b", "0.33.0", "h100", 3),
        ("kimi-k3", "0.28.0", "h100", 2),
        ("kimi-k3", "0.29.0", "h100", 3),
        ("kimi-k3", "0.29.0", "a100-80gb", 2),
    ],
)
def test_a_checkpoint_of_a_prefill_takes_a_block_of_states(
    model: str, version: str, device: str, blocks: int
) -> None:
    audit = audit_model(model)
    rule = state_rule(audit.spec, audit.config, parse_version(version), device=find_device(device))
    assert rule.blocks == blocks


def test_gates_without_a_bound_are_no_kernels_for_checkpoints() -> None:
    audit = audit_model("kimi-k3")
    config = {**audit.config, "text_config": {"linear_attn_config": {"gate_lower_bound": None}}}
    assert state_rule(audit.spec, config, parse_version("0.32.0")).blocks == 2


def plan_of(config: dict[str, Any], **request: Any) -> Plan:
    found = FoundModel(kind="config", id="m", where="config.json", config=config)
    asked = PlanRequest(engine=ENGINE.name, kv_memory=2**40, **request)
    return plan_model(planned(audit_source(found)), asked)


def test_what_is_not_modelled_is_said() -> None:
    asked = PlanRequest(engine=ENGINE.name, kv_memory=2**40, kv_dtype="bf16")
    plan = plan_model(planned(audit_model("deepseek-v4-flash")), asked)
    assert "logs several times fewer tokens" in " ".join(plan.pool.notes())


def test_convolutions_are_windows_in_blocks_of_their_own() -> None:
    """66 layers of 8 K/V heads of 128 and hidden 6,144: 2 x 128 + 2 x 6,144 / 8 = 1,792 elements of
    a head, padded to 2,048; 4 tokens of 8 such heads in bfloat16 are 131,072 B, as are 32 tokens of
    keys and values. A request of 1,000 tokens takes 32 blocks of these, and 250 of convolutions and
    one more, as its window may begin inside a block; one block no request gets."""
    plan = plan_of({"model_type": "inkling_mm_model"}, context=1000)
    assert isinstance(plan.pool, VllmPool)
    assert [group.block_size for group in plan.pool.table.groups] == [32, 4]
    assert plan.pool.table.block_bytes == (66 * 131_072,)
    assert plan.kv_cache_bytes == (32 + 250 + 1 + 1) * 66 * 131_072


@pytest.mark.parametrize("model_type", ["llama", "mistral", "qwen2", "qwen3"])
def test_attention_without_a_causal_mask_keeps_nothing(model_type: str) -> None:
    """AttentionType.ENCODER_ONLY of vllm/model_executor/models/llama.py, qwen2.py and qwen3.py."""
    config: dict[str, Any] = {"model_type": model_type}
    assert plan_of(config, context=1000).kv_cache_bytes > 0
    found = plan_of({**config, "is_causal": False}, context=1000)
    assert (found.kv_cache_bytes, found.kv_tokens, found.fits) == (0, 0, True)


def test_a_class_that_ignores_the_type_of_cache_says_so() -> None:
    """FalconAttention of vllm/model_executor/models/falcon.py."""
    plans = [
        plan_model(
            planned(audit_model("falcon-7b")),
            PlanRequest(engine=ENGINE.name, kv_memory=2**30, kv_dtype=name),
        )
        for name in (None, "fp8")
    ]
    pools = [plan.pool for plan in plans]
    assert all(isinstance(pool, VllmPool) for pool in pools)
    assert plans[0].num_blocks == plans[1].num_blocks
    said = ["ignores --kv-cache-dtype" in " ".join(pool.notes()) for pool in pools]
    assert said == [False, True]
