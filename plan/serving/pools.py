"""The K/V memory of a model on each engine, from a request."""

from collections.abc import Callable
from dataclasses import dataclass

from ..engines.kv_formats import ENGINE_DTYPES, kv_format
from ..engines.layers import LayerCache, staged_caches
from ..engines.pool import Pool
from ..engines.states import with_state_dtypes
from ..engines.vllm_defaults import default_step, in_flight_tokens
from ..request import Workload
from .request import ServingRequest, Subject


@dataclass(frozen=True, kw_only=True, slots=True)
class Stages:
    """The caches of one rank, and on which pipeline stage each is."""

    caches: tuple[LayerCache, ...]
    stages: tuple[int, ...]


def make_pool(subject: Subject, request: ServingRequest, workload: Workload) -> Pool:
    """The pool of one rank. Raises HeadcountError for a dtype that the engine does not have."""
    return _POOLS[request.engine](subject, request, workload)


def plain_kv_dtype(name: str | None) -> str | None:
    """The name for the parts of a plan that know element types only."""
    if name is None or name == "auto" or name in ENGINE_DTYPES:
        return None
    kv_format(name, compute_bits=16)  # raises for what is no dtype either
    return name


def _caches(subject: Subject, request: ServingRequest, workload: Workload) -> Stages:
    kv = kv_format(_kv_dtype(subject, request), compute_bits=workload.compute_bits)
    kv = with_state_dtypes(kv, subject.spec, subject.config, workload.compute_bits)
    found = staged_caches(subject.spec, tp=request.tp, pp=request.pp, kv=kv, chunk=_chunk(subject))
    return Stages(caches=found.caches, stages=found.stages)


def _kv_dtype(subject: Subject, request: ServingRequest) -> str | None:
    """vLLM 0.11.0 stored DeepSeek-V3.2's latents in its own layout unless told otherwise
    (DeepseekV32ForCausalLM of vllm/model_executor/models/config.py)."""
    name, version = request.kv_dtype, request.version
    is_default = request.engine == "vllm" and name in (None, "auto")
    first = version.at_least(0, 11) and not version.at_least(0, 11, 1)
    if is_default and first and subject.spec.model_type == "deepseek_v32":
        return "fp8_ds_mla"
    return name


def _chunk(subject: Subject) -> int | None:
    for holder in (subject.config, subject.config.get("text_config") or {}):
        size = holder.get("attention_chunk_size") if isinstance(holder, dict) else None
        if type(size) is int:
            return size
    return None


def _vllm(subject: Subject, request: ServingRequest, workload: Workload) -> Pool:
    from ..engines.vllm_blocks import block_table
    from ..engines.vllm_hybrid import as_allocated
    from ..engines.vllm_pool import VllmPool
    from ..engines.vllm_states import state_rule

    found = _caches(subject, request, workload)
    caches = as_allocated(
        found.caches, request.version, disabled=request.disable_hybrid_kv_cache_manager
    )
    step = default_step(request.version, request.device, request.usage)
    tokens = request.max_num_batched_tokens or step.max_num_batched_tokens
    states = state_rule(
        subject.spec,
        subject.config,
        request.version,
        mode=request.mamba_cache_mode,
        caches_prefixes=request.caches_prefixes,
        device=request.device,
    )
    return VllmPool(
        table=block_table(
            caches,
            version=request.version,
            block_size=request.block_size,
            stages=found.stages,
            chunk=states.chunk,
        ),
        layers=caches,
        version=request.version,
        in_flight=in_flight_tokens(request.version, tokens, request.pp),
        encoder_tokens=workload.encoder_tokens,
        context_ranks=request.context_ranks,
        states=states,
    )


def _sglang(subject: Subject, request: ServingRequest, workload: Workload) -> Pool:
    from ..engines.sglang import sglang_pool

    found = _caches(subject, request, workload)
    return sglang_pool(found.caches, page_size=request.block_size or 1)


def _llama_cpp(subject: Subject, request: ServingRequest, workload: Workload) -> Pool:
    from ..engines.llama_cpp import llama_cpp_pool

    return llama_cpp_pool(subject.spec, tp=request.tp, kv_dtype=request.kv_dtype)


def _transformers(subject: Subject, request: ServingRequest, workload: Workload) -> Pool:
    from ..engines.transformers_cache import TransformersPool

    bits = kv_format(request.kv_dtype, compute_bits=workload.compute_bits).bits
    return TransformersPool(
        spec=subject.spec,
        bits=bits,
        tp=request.tp,
        encoder_tokens=workload.encoder_tokens,
        static=request.static_cache,
    )


_POOLS: dict[str, Callable[[Subject, ServingRequest, Workload], Pool]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "llama.cpp": _llama_cpp,
    "transformers": _transformers,
}
