"""vLLM as an engine: its budget, its blocks and its command, by the rules of a version."""

from ...devices import Device
from ...planned_model import PlannedModel
from ...request import CacheType, PlanRequest, Workload
from ...served import as_served
from ..cache_names import AUTO
from ..engine import Engine
from ..loaded_weights import loaded_weights
from ..paged import named_cache_type
from ..version import Releases, Version
from .budget import vllm_budget, vllm_host
from .cache_kernels import LATENT_SIZES, layout_of_picked
from .cache_types import CACHES
from .defaults import step_limits
from .launch import vllm_launch
from .model_rules import default_cache, ignores_cache_dtype, with_its_caches
from .pool import vllm_pool
from .refusals import vllm_notes, vllm_platforms, vllm_refusals


def _as_run(model: PlannedModel) -> PlannedModel:
    return with_its_caches(as_served(model))


def _cache_type(
    model: PlannedModel, request: PlanRequest, version: Version, compute_dtype: str
) -> CacheType:
    spec, config = model.spec, model.config
    if ignores_cache_dtype(spec.model_type):
        return named_cache_type(None, compute_dtype)
    name = CACHES.own(request.kv_dtype, version, compute_dtype)
    if name == AUTO:
        name = default_cache(spec.model_type, config, version, request.device) or name
    kept, is_plain = layout_of_picked(name, spec, request.device, version)
    return named_cache_type(kept, compute_dtype)._replace(plain_latents=is_plain)


def _most_at_once(model: PlannedModel, device: Device | None, work: Workload) -> int:
    """A request more waits until one of them has ended (vllm/v1/core/sched/scheduler.py), of each
    rank of data parallel."""
    return work.request.dp * step_limits(work.version, device, work.request).max_num_seqs


ENGINE = Engine(
    name="vllm",
    latents="mla",
    latent_sizes=LATENT_SIZES,
    as_run=_as_run,
    budget=vllm_budget,
    host=vllm_host,
    pool=vllm_pool,
    launch=vllm_launch,
    cache_type=_cache_type,
    listed_as="vLLM",
    weights=loaded_weights,
    options=frozenset(
        {
            *("version", "pp", "context_ranks", "block_size", "max_num_seqs", "sampler", "usage"),
            *("max_num_batched_tokens", "enforce_eager", "disable_hybrid_kv_cache_manager"),
            *("mamba_cache_mode", "caches_prefixes", "model_runner", "speculative_config"),
            *("pp_layer_partition", "dp", "enable_expert_parallel", "num_redundant_experts"),
            *("enable_lora", "max_loras", "max_lora_rank", "lora_dtype", "lora_target_modules"),
            *("fully_sharded_loras", "cpu_offload_gb", "limit_mm_per_prompt"),
            *("mm_processor_kwargs", "async_scheduling"),
        }
    ),
    releases=Releases(oldest=(0, 8, 5), newest=(0, 33)),
    narrower_caches=("fp8",),
    keeps_float32=False,
    profiles_sequences=True,
    platforms=vllm_platforms,
    refusals=vllm_refusals,
    most_at_once=_most_at_once,
    notes=vllm_notes,
)
