"""Commands that plans give, over a grid of starts and of formats of weights."""

from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

from headcount.audit.auditing import audit_model
from headcount.model.errors import HeadcountError
from headcount.plan.command import planned
from headcount.plan.devices import find_device
from headcount.plan.engines.engine import find_engine
from headcount.plan.engines.launch import Launch
from headcount.plan.plan import plan_model
from headcount.plan.planned_model import PlannedModel
from headcount.plan.request import PlanRequest

H200 = find_device("h200")
LLAMA, CODER = "meta-llama/Meta-Llama-3-8B", "meta-llama/Llama-3.1-8B-Instruct"
EXPERTS = "qwen3-30b-a3b"


@cache
def model(name: str) -> PlannedModel:
    return planned(audit_model(name))


def launch(name: str, engine: str, version: str | None = None, **request: Any) -> Launch:
    numbers = find_engine(engine).releases.parse(version) if version else None
    asked = PlanRequest(**{"engine": engine, "version": numbers, "device": H200, **request})
    found = plan_model(model(name), asked).launch
    assert found is not None
    return found


DTYPES = (
    *(None, "bf16", "fp16", "fp8", "int8", "int4", "awq", "gptq", "nf4", "nvfp4", "mxfp4"),
    *("mxfp8", "q4_k_m"),
)
STARTS: tuple[dict[str, Any], ...] = (
    {},
    {"tp": 2, "pp": 2, "utilisation": 0.8, "kv_dtype": "fp8", "enforce_eager": True},
    {"kv_memory": 9 * 2**30, "block_size": 32, "max_num_seqs": 64, "kv_dtype": "bf16"},
    {"mamba_cache_mode": "align", "context": 300_000, "model_runner": "v1", "max_num_seqs": 8},
    {"disable_hybrid_kv_cache_manager": True, "sampler": "flashinfer", "usage": "offline"},
    {"tp": 16, "context_ranks": 2, "max_num_batched_tokens": 4096, "caches_prefixes": False},
    {"kv_dtype": "nvfp4", "usage": "offline", "mamba_cache_mode": "none"},
    {"kv_dtype": "q8_0", "batch_size": 4, "static_cache": True},
    {"parallel": 2, "kv_unified": True, "ubatch_size": 256, "gpu_layers": 12, "swa_full": True},
    {"cache_type_k": "q8_0", "cache_type_v": "f16", "flash_attn": "on", "no_kv_offload": True},
    {"enable_expert_parallel": True, "n_cpu_moe": 4, "parallel": 4, "pp": 2},
    {"cpu_moe": True, "tp": 2},
    {"enable_lora": True, "max_loras": 4, "max_lora_rank": 64, "lora_dtype": "float16"},
    {"enable_lora": True, "lora_target_modules": ("q_proj",), "fully_sharded_loras": True, "tp": 2},
    {"cpu_offload_gb": 4.0, "dp": 2, "pp": 2, "pp_layer_partition": (20, 12)},
    {"enable_expert_parallel": True, "num_redundant_experts": 2, "tp": 2},
)
_OF_ANY = {"device", "kv_memory", "context", "batch_size", "tp", "utilisation", "kv_dtype"}


def launches(engine: str, version: str, *, whole: bool = False) -> Iterator[Launch]:
    """Of every start with the weights as they are, and of some with weights of every format; of all
    with all where `whole`. A cache that the version has not gives none."""
    options = find_engine(engine).options
    starts = STARTS if whole else STARTS[:2]
    for start, dtype in (*product(STARTS, (None,)), *product(starts, DTYPES)):
        asked = {name: value for name, value in start.items() if name in _OF_ANY | options}
        if (asked.get("kv_dtype") == "q8_0") != (engine == "llama.cpp" and "kv_dtype" in asked):
            continue
        name = EXPERTS if "enable_expert_parallel" in asked else LLAMA
        try:
            yield launch(name, engine, version, dtype=dtype, **asked)
        except HeadcountError as error:
            assert "has no cache of" in str(error) or "keeps its cache" in str(error)
