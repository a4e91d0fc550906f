"""How an engine is started, as `plan` and `reconcile` are told it: their options by name."""

from collections.abc import Mapping, Sequence
from functools import partial
from json import dumps
from typing import Any, Literal, TypedDict

from headcount.model.errors import HeadcountError, short
from headcount.plan.options.algorithms import ALGORITHMS
from headcount.plan.request import (
    FLASH_ATTENTION,
    MODEL_RUNNERS,
    SAMPLERS,
    STATE_MODES,
    FlashAttention,
    ModelRunner,
    StateMode,
)

from .values import Check, Size, flag, integer, number, one_of, several, text, tokens


class StartOptions(TypedDict, total=False):
    """Options of `headcount plan --help` by their names there: which engine takes which is said
    there, and a plan refuses those that its engine does not take. What is JSON on the command line
    may be a dict."""

    engine_version: str | None
    pp: int | None
    context_ranks: int | None
    block_size: int | None
    max_num_seqs: int | None
    max_num_batched_tokens: Size | None
    enforce_eager: bool
    disable_hybrid_kv_cache_manager: bool
    mamba_cache_mode: StateMode | None
    sampler: Literal["pytorch", "flashinfer"] | None
    model_runner: ModelRunner | None
    offline: bool
    gpu_layers: int | None
    n_cpu_moe: int | None
    cpu_moe: bool
    no_kv_offload: bool
    parallel: int | None
    kv_unified: bool
    ubatch_size: int | None
    cache_type_k: str | None
    cache_type_v: str | None
    flash_attn: FlashAttention | None
    swa_full: bool
    limit_mm_per_prompt: str | Mapping[str, Any] | None
    mm_processor_kwargs: str | Mapping[str, Any] | None
    dp: int | None
    enable_expert_parallel: bool
    enable_dp_attention: bool
    ep_size: int | None
    num_redundant_experts: int | None
    pp_layer_partition: Sequence[int] | None
    speculative_config: str | Mapping[str, Any] | None
    speculative_algorithm: str | None
    speculative_draft_model_path: str | None
    speculative_num_steps: int | None
    speculative_eagle_topk: int | None
    speculative_num_draft_tokens: int | None
    enable_lora: bool
    max_loras: int | None
    max_lora_rank: int | None
    lora_dtype: Literal["float16", "bfloat16"] | None
    lora_target_modules: Sequence[str] | None
    fully_sharded_loras: bool
    cpu_offload_gb: float | None


def _json(name: str, value: Any) -> str:
    """JSON as text, or the object that it would be."""
    try:
        return dumps(value) if isinstance(value, Mapping) else text(name, value)
    except (TypeError, ValueError) as error:
        raise HeadcountError(f"{name} is {short(value)}; JSON is meant") from error


_from_0: Check = partial(integer, least=0)
# The argument -> what its value is held against.
STARTS: Mapping[str, Check] = {
    **dict.fromkeys(
        (
            *("pp", "context_ranks", "block_size", "max_num_seqs", "parallel", "ubatch_size"),
            *("dp", "ep_size", "max_loras", "max_lora_rank", "speculative_num_steps"),
            *("speculative_eagle_topk", "speculative_num_draft_tokens"),
        ),
        integer,
    ),
    **dict.fromkeys(("gpu_layers", "n_cpu_moe", "num_redundant_experts"), _from_0),
    **dict.fromkeys(
        (
            *("enforce_eager", "disable_hybrid_kv_cache_manager", "offline", "cpu_moe"),
            *("no_kv_offload", "kv_unified", "swa_full", "enable_expert_parallel"),
            *("enable_dp_attention", "enable_lora", "fully_sharded_loras"),
        ),
        flag,
    ),
    **dict.fromkeys(
        ("engine_version", "cache_type_k", "cache_type_v", "speculative_draft_model_path"), text
    ),
    **dict.fromkeys(("limit_mm_per_prompt", "mm_processor_kwargs", "speculative_config"), _json),
    "max_num_batched_tokens": tokens,
    "mamba_cache_mode": one_of(STATE_MODES),
    "sampler": one_of(SAMPLERS),
    "model_runner": one_of(MODEL_RUNNERS),
    "flash_attn": one_of(FLASH_ATTENTION),
    "speculative_algorithm": one_of(ALGORITHMS),
    "lora_dtype": one_of(("float16", "bfloat16")),
    "pp_layer_partition": several(_from_0),
    "lora_target_modules": several(text),
    "cpu_offload_gb": number,
}
