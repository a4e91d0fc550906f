"""What a plan for an engine is asked for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headcount.model.errors import HeadcountError
from headcount.model.spec import ModelSpec

from ..devices import Device
from ..engines.version import Version, newest
from ..engines.vllm_defaults import Usage
from ..engines.vllm_states import StateMode

ENGINES = ("vllm", "sglang", "transformers", "llama.cpp")


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """The model. `weights_bytes` are those of the headers, where they are at hand."""

    model_id: str
    spec: ModelSpec
    config: Mapping[str, Any] = field(default_factory=dict)
    weights_bytes: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ServingRequest:
    """None stands for the engine's or the model's default.

    `kv_memory` is a budget of bytes on each device that is given instead of reckoned. `batch_size`
    requests of `context` tokens each are to fit. `tp` devices share each layer, `pp` stages the
    layers; `context_ranks` is decode times prefill context parallel. Raises HeadcountError for
    impossible values.
    """

    engine: str = "vllm"
    version: Version = field(default_factory=lambda: newest("vllm"))
    device: Device | None = None
    kv_memory: int | None = None
    context: int | None = None
    batch_size: int = 1
    encoder_tokens: int | None = None
    dtype: str | None = None
    kv_dtype: str | None = None
    tp: int = 1
    pp: int = 1
    context_ranks: int = 1
    utilisation: float | None = None
    block_size: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    enforce_eager: bool = False
    sampler: str = "pytorch"
    usage: Usage = "server"
    static_cache: bool = False
    disable_hybrid_kv_cache_manager: bool = False
    mamba_cache_mode: StateMode | None = None
    caches_prefixes: bool | None = None

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise HeadcountError(
                f"engine {self.engine!r} is not known; known are {', '.join(ENGINES)}"
            )
        if self.utilisation is not None and not 0 < self.utilisation <= 1:
            raise HeadcountError(
                f"utilisation is {self.utilisation}; above 0 and at most 1 is meant"
            )
