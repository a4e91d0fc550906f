"""vLLM as an engine: its budget, its blocks and its command, by the rules of a version."""

from ...planned_model import PlannedModel
from ...request import CacheType, PlanRequest
from ..engine import Engine
from ..loaded_weights import loaded_weights
from ..paged import named_cache_type
from ..version import Releases, Version
from .budget import vllm_budget
from .launch import vllm_launch
from .model_rules import default_cache
from .pool import vllm_pool


def _cache_type(
    model: PlannedModel, request: PlanRequest, version: Version, compute_dtype: str
) -> CacheType:
    name = request.kv_dtype
    if name in (None, "auto"):
        name = default_cache(model.spec.model_type, version)
    return named_cache_type(name, compute_dtype)


ENGINE = Engine(
    name="vllm",
    budget=vllm_budget,
    pool=vllm_pool,
    launch=vllm_launch,
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
