"""vLLM as an engine: its budget, its blocks and its command, by the rules of a version."""

from collections.abc import Iterator
from shlex import quote

from headcount.model.dtypes import ALIASES

from ...planned_model import PlannedModel
from ...request import CacheType, PlanRequest, Workload
from ..cache_names import AUTO, CacheNames
from ..engine import Engine, option
from ..loaded_weights import loaded_weights
from ..paged import named_cache_type
from ..version import Releases, Version
from .budget import vllm_budget
from .model_rules import default_cache
from .pool import vllm_pool

# CacheDType of vllm/config/cache.py (vllm/config.py before 0.10), as it stands in 0.8.5, 0.9.0.1,
# 0.9.2, 0.10.2 and each minor release from 0.11 to 0.32.
CACHES = CacheNames(
    engine="vLLM",
    option="--kv-cache-dtype",
    since={
        **dict.fromkeys(("fp8", "fp8_e4m3", "fp8_e5m2"), ()),
        **{"fp8_inc": (0, 10, 2), "bfloat16": (0, 11), "fp8_ds_mla": (0, 12), "float16": (0, 18)},
        **dict.fromkeys(("turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc"), (0, 20)),
        **dict.fromkeys(("turboquant_3bit_nc", "int8_per_token_head"), (0, 20)),
        **dict.fromkeys(("fp8_per_token_head", "nvfp4"), (0, 20)),
        **{"int4_per_token_head": (0, 25), "nvfp4_4over6": (0, 28), "nvfp4_ds_mla": (0, 30)},
        "ultraquant_4bit": (0, 32),
    },
)


def _cache_type(
    model: PlannedModel, request: PlanRequest, version: Version, compute_dtype: str
) -> CacheType:
    name = CACHES.own(request.kv_dtype, version, compute_dtype)
    spec, config = model.spec, model.config
    default = default_cache(spec.model_type, config, version) if name == AUTO else None
    return named_cache_type(default or name, compute_dtype)


def _launch(model_id: str, work: Workload, kv_tokens: int) -> Iterator[str]:
    request = work.request
    if request.model_runner is not None:
        yield f"VLLM_USE_V2_MODEL_RUNNER={int(request.model_runner == 'v2')}"
    if request.sampler is not None:
        yield f"VLLM_USE_FLASHINFER_SAMPLER={int(request.sampler == 'flashinfer')}"
    yield f"vllm serve {quote(model_id)} --max-model-len {work.context}"
    yield from option("--tensor-parallel-size", request.tp, 1)
    yield from option("--pipeline-parallel-size", request.pp, 1)
    yield from option("--decode-context-parallel-size", request.context_ranks, 1)
    if request.kv_memory is not None:
        yield f"--kv-cache-memory-bytes {request.kv_memory}"
    elif request.utilisation is not None:
        yield f"--gpu-memory-utilization {request.utilisation:g}"
    if (cache := CACHES.own(request.kv_dtype, work.version, work.compute_dtype)) != AUTO:
        yield f"--kv-cache-dtype {cache}"
    yield from _dtype(request.dtype)
    yield from option("--block-size", request.block_size)
    yield from option("--max-num-seqs", request.max_num_seqs)
    yield from option("--max-num-batched-tokens", request.max_num_batched_tokens)
    if request.enforce_eager:
        yield "--enforce-eager"
    if request.disable_hybrid_kv_cache_manager:
        yield "--disable-hybrid-kv-cache-manager"
    if request.mamba_cache_mode is not None:
        caches = "--no-enable" if request.mamba_cache_mode == "none" else "--enable"
        yield f"{caches}-prefix-caching --mamba-cache-mode {request.mamba_cache_mode}"


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
            *("mamba_cache_mode", "caches_prefixes", "model_runner", "speculated", "draft_layers"),
        }
    ),
    releases=Releases(oldest=(0, 8, 5), newest=(0, 33)),
    narrower_caches=("fp8",),
    keeps_float32=False,
    profiles_sequences=True,
)
