"""vLLM as an engine: its budget, its blocks and its command, by the rules of a version."""

import json
from collections.abc import Iterator
from shlex import quote

from headcount.model.dtypes import ALIASES

from ...planned_model import PlannedModel
from ...request import CacheType, PlanRequest, Workload
from ..engine import Engine, option
from ..loaded_weights import loaded_weights
from ..paged import named_cache_type
from ..version import Releases, Version
from .budget import vllm_budget
from .model_rules import default_cache
from .pool import vllm_pool


def _cache_type(
    model: PlannedModel, request: PlanRequest, version: Version, compute_dtype: str
) -> CacheType:
    name = request.kv_dtype
    if name in (None, "auto"):
        name = default_cache(model.spec.model_type, version)
    return named_cache_type(name, compute_dtype)


def _launch(model_id: str, work: Workload, kv_tokens: int) -> Iterator[str]:
    request = work.request
    if request.model_runner is not None:
        yield f"VLLM_USE_V2_MODEL_RUNNER={int(request.model_runner == 'v2')}"
    if request.sampler is not None:
        yield f"VLLM_USE_FLASHINFER_SAMPLER={int(request.sampler == 'flashinfer')}"
    if request.pp_layer_partition is not None:
        yield f"VLLM_PP_LAYER_PARTITION={','.join(map(str, request.pp_layer_partition))}"
    yield f"vllm serve {quote(model_id)} --max-model-len {work.context}"
    yield from option("--tensor-parallel-size", request.tp, 1)
    yield from option("--pipeline-parallel-size", request.pp, 1)
    yield from option("--data-parallel-size", request.dp, 1)
    if request.enable_expert_parallel:
        yield "--enable-expert-parallel"
    if request.num_redundant_experts:
        yield from _redundant(request.num_redundant_experts, work.version)
    yield from option("--decode-context-parallel-size", request.context_ranks, 1)
    if request.kv_memory is not None:
        yield f"--kv-cache-memory-bytes {request.kv_memory}"
    elif request.utilisation is not None:
        yield f"--gpu-memory-utilization {request.utilisation:g}"
    if request.kv_dtype not in (None, "auto"):
        yield f"--kv-cache-dtype {_cache(request.kv_dtype)}"
    yield from _dtype(request.dtype)
    yield from option("--block-size", request.block_size)
    yield from option("--max-num-seqs", request.max_num_seqs)
    yield from option("--max-num-batched-tokens", request.max_num_batched_tokens)
    if request.enforce_eager:
        yield "--enforce-eager"
    if request.disable_hybrid_kv_cache_manager:
        yield "--disable-hybrid-kv-cache-manager"
    yield from _adapters(request)
    if request.cpu_offload_gb is not None:
        yield f"--cpu-offload-gb {request.cpu_offload_gb:g}"
    if request.speculative_config is not None:
        yield f"--speculative-config {quote(request.speculative_config.given)}"
    if request.mamba_cache_mode is not None:
        caches = "--no-enable" if request.mamba_cache_mode == "none" else "--enable"
        yield f"{caches}-prefix-caching --mamba-cache-mode {request.mamba_cache_mode}"


def _adapters(request: PlanRequest) -> Iterator[str]:
    if not request.enable_lora:
        return
    yield "--enable-lora"
    yield from option("--max-loras", request.max_loras)
    yield from option("--max-lora-rank", request.max_lora_rank)
    if request.lora_dtype is not None:
        yield f"--lora-dtype {request.lora_dtype}"
    if request.lora_target_modules:
        yield f"--lora-target-modules {' '.join(map(quote, request.lora_target_modules))}"
    if request.fully_sharded_loras:
        yield "--fully-sharded-loras"


def _redundant(count: int, version: Version) -> Iterator[str]:
    """An option of its own until 0.11 (EPLBConfig of vllm/config/parallel.py)."""
    yield "--enable-eplb"
    if not version.at_least(0, 11):
        yield f"--num-redundant-experts {count}"
        return
    settings = json.dumps({"num_redundant_experts": count})
    yield f"--eplb-config {quote(settings)}"


def _cache(name: str | None) -> str:
    full = ALIASES.get(name or "", name or "")
    return {"float8_e4m3fn": "fp8", "float8_e5m2": "fp8_e5m2"}.get(full, full)


def _dtype(dtype: str | None) -> Iterator[str]:
    full = ALIASES.get(dtype or "", dtype or "")
    if full.startswith("float8"):
        yield "--quantization fp8"
    elif full in ("float16", "bfloat16", "float32"):
        yield f"--dtype {full}"


ENGINE = Engine(
    name="vllm",
    budget=vllm_budget,
    pool=vllm_pool,
    launch=_launch,
    cache_type=_cache_type,
    weights=loaded_weights,
    options=frozenset(
        {
            *("version", "pp", "context_ranks", "block_size", "max_num_seqs", "sampler", "usage"),
            *("max_num_batched_tokens", "enforce_eager", "disable_hybrid_kv_cache_manager"),
            *("mamba_cache_mode", "caches_prefixes", "model_runner", "speculative_config"),
            *("pp_layer_partition", "dp", "enable_expert_parallel", "num_redundant_experts"),
            *("enable_lora", "max_loras", "max_lora_rank", "lora_dtype", "lora_target_modules"),
            *("fully_sharded_loras", "cpu_offload_gb"),
        }
    ),
    releases=Releases(oldest=(0, 8, 5), newest=(0, 33)),
    narrower_caches=("fp8",),
    keeps_float32=False,
    profiles_sequences=True,
)
