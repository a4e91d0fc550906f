"""What a plan is asked for, and the same with every default filled in from model and engine."""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from headcount.model import limits
from headcount.model.dtypes import BITS, Bits
from headcount.model.errors import HeadcountError, short

from .devices import Device
from .engines.registry import PLAIN
from .engines.version import Version
from .weights import Weights

if TYPE_CHECKING:
    from .options.modalities import ImageSize, MostItems
    from .options.speculation import Speculation

UTILISATION = 0.90  # what serving engines take of a device's visible memory unless told otherwise
Usage = Literal["server", "offline"]
StateMode = Literal["none", "align", "all"]
STATE_MODES: tuple[StateMode, ...] = get_args(StateMode)
_COUNTS = (
    *("context", "batch_size", "encoder_tokens", "tp", "pp", "dp", "ep_size", "context_ranks"),
    *("block_size", "max_num_seqs", "max_num_batched_tokens", "max_loras", "max_lora_rank"),
    *("parallel", "ubatch_size"),
)
SAMPLERS = ("pytorch", "flashinfer")
ModelRunner = Literal["v1", "v2"]
MODEL_RUNNERS: tuple[ModelRunner, ...] = get_args(ModelRunner)
FlashAttention = Literal["on", "off", "auto"]
FLASH_ATTENTION: tuple[FlashAttention, ...] = get_args(FlashAttention)
# Fields that any plan takes; each of the others is an option of some engines (`Engine.options`).
OF_ANY_PLAN = frozenset(
    {
        *("engine", "device", "kv_memory", "context", "batch_size", "encoder_tokens"),
        *("dtype", "kv_dtype", "tp", "utilisation"),
    }
)
_FLAGS = {"version": "--engine-version", "usage": "--offline"}  # options that are called otherwise


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanRequest:
    """None stands for the engine's or the model's own: its maximum context, its encoder's length,
    its dtypes, the newest version.

    `batch_size` requests of `context` tokens each are to fit. `tp` devices share each layer, `pp`
    stages the layers, `pp_layer_partition` says how many each has; `dp` ranks of data parallel
    share the requests, and of a mixture of experts the experts, which `enable_expert_parallel`
    spreads whole, with `num_redundant_experts` copies, as do `ep_size` ranks of SGLang's; with
    `enable_dp_attention` the ranks of `dp` are among those of `tp`; `context_ranks` is decode times
    prefill context parallel. `utilisation` is the fraction of a device's memory that may be taken;
    `kv_memory` are bytes for the cache of each device, given instead of reckoned. What follows are
    an engine's own options; with `async_scheduling` False no step is scheduled before the last is
    done. Raises HeadcountError for impossible values.
    """

    engine: str = PLAIN
    version: Version | None = None
    device: Device | None = None
    kv_memory: int | None = None
    context: int | None = None
    batch_size: int = 1
    encoder_tokens: int | None = None
    dtype: str | None = None
    kv_dtype: str | None = None
    tp: int = 1
    pp: int = 1
    pp_layer_partition: tuple[int, ...] | None = None
    dp: int = 1
    enable_expert_parallel: bool = False
    num_redundant_experts: int = 0
    enable_dp_attention: bool = False
    ep_size: int = 1
    context_ranks: int = 1
    utilisation: float | None = None
    block_size: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    enforce_eager: bool = False
    sampler: str | None = None
    model_runner: ModelRunner | None = None
    usage: Usage = "server"
    static_cache: bool = False
    disable_hybrid_kv_cache_manager: bool = False
    mamba_cache_mode: StateMode | None = None
    caches_prefixes: bool | None = None
    enable_lora: bool = False
    max_loras: int | None = None
    max_lora_rank: int | None = None
    lora_dtype: str | None = None
    lora_target_modules: tuple[str, ...] | None = None
    fully_sharded_loras: bool = False
    cpu_offload_gb: float | None = None
    speculative_config: "Speculation | None" = None
    limit_mm_per_prompt: "MostItems | None" = None
    mm_processor_kwargs: "ImageSize | None" = None
    speculative_algorithm: "Speculation | None" = None
    async_scheduling: bool | None = None
    parallel: int | None = None
    kv_unified: bool = False
    ubatch_size: int | None = None
    cache_type_k: str | None = None
    cache_type_v: str | None = None
    flash_attn: FlashAttention | None = None
    swa_full: bool = False
    gpu_layers: int | None = None
    n_cpu_moe: int | None = None
    cpu_moe: bool = False
    no_kv_offload: bool = False

    def __post_init__(self) -> None:
        for name in _COUNTS:
            value = getattr(self, name)
            if value is not None and not 1 <= value <= limits.NUMBER.most:
                raise HeadcountError(
                    f"{name} is {short(value)}; it must be from 1 to {limits.NUMBER.most:,}"
                )
        if self.utilisation is not None and not 0 < self.utilisation <= 1:
            raise HeadcountError(
                f"utilisation is {self.utilisation}; above 0 and at most 1 is meant"
            )

        most, offloaded = limits.NUMBER.most >> 30, self.cpu_offload_gb
        if offloaded is not None and not 0 <= offloaded <= most:
            raise HeadcountError(
                f"cpu_offload_gb is {short(offloaded)}; from 0 to {most:,} GiB is meant"
            )

    @property
    def engine_options(self) -> tuple[str, ...]:
        """Fields beyond those of any plan that are not at their defaults."""
        return tuple(
            field.name
            for field in fields(self)
            if field.name not in OF_ANY_PLAN and getattr(self, field.name) != field.default
        )

    @property
    def speculation(self) -> "Speculation | None":
        """What drafts, whatever the engine calls it."""
        return self.speculative_config or self.speculative_algorithm

    @property
    def drafted(self) -> int:
        """Tokens that are drafted in each step."""
        return self.speculation.tokens if self.speculation else 0

    @property
    def ranks(self) -> int:
        """Devices in all."""
        return self.tp * self.pp * (1 if self.enable_dp_attention else self.dp)

    @property
    def attention_tp(self) -> int:
        """Ranks that share a layer's attention and cache."""
        return self.tp // self.dp if self.enable_dp_attention else self.tp

    def each_of_dp(self, batch_size: int) -> int:
        """Of so many requests at once, those of the rank of data parallel that has most."""
        return -(-batch_size // self.dp)


def flag(name: str) -> str:
    """The option of the command line that fills a field."""
    return _FLAGS.get(name) or f"--{name.replace('_', '-')}"


class CacheType(NamedTuple):
    """A type of cache, and the bits of an element of it, without scales that lie elsewhere.
    `plain_latents`: latents that an indexer picks have no layout of their own."""

    name: str
    bits: Bits
    plain_latents: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """A request with the defaults of model and engine. `dtype` is None: weights stay as they are
    stored. `weights` are None where they are not known, as given K/V memory allows."""

    request: PlanRequest
    version: Version
    context: int
    encoder_tokens: int
    dtype: str | None
    compute_dtype: str
    cache_type: CacheType
    weights: Weights | None

    @property
    def batch_size(self) -> int:
        return self.request.batch_size

    @property
    def kv_dtype(self) -> str:
        return self.cache_type.name

    @property
    def kv_bits(self) -> Bits:
        return self.cache_type.bits

    @property
    def compute_bits(self) -> int:
        return BITS[self.compute_dtype]
