"""Whether a model fits: what one rank needs, against the memory of one device."""

from dataclasses import dataclass
from math import ceil, floor

from headcount.model.spec import ModelSpec

from .cache import RankCache, rank_cache
from .devices import Device
from .limits import largest
from .overhead import Overhead, Term, plan_overhead
from .parallel import replicated_parameters
from .request import Workload
from .weights import Weights


@dataclass(frozen=True, kw_only=True, slots=True)
class Rank:
    """What one of `tp` ranks holds. Context and batch are arguments; both only ever add bytes."""

    tp: int
    weights_bytes: int
    weights_formula: str
    cache: RankCache
    overhead: Overhead

    def cache_bytes(self, context: int, batch_size: int) -> int:
        return self.cache.bytes_per_sequence(context) * batch_size

    def total_bytes(self, context: int, batch_size: int) -> int:
        overhead = self.overhead.total_bytes(context, batch_size)
        return self.weights_bytes + self.cache_bytes(context, batch_size) + overhead

    def terms(self, context: int, batch_size: int) -> tuple[Term, ...]:
        """Weights, KV cache, runtime and activations: their sum is `total_bytes`."""
        return (
            Term(
                key="weights",
                title="Weights",
                bytes=self.weights_bytes,
                formula=self.weights_formula,
            ),
            Term(
                key="kv_cache",
                title="KV cache",
                bytes=self.cache_bytes(context, batch_size),
                formula=self.cache.formula(context, batch_size),
            ),
            *self.overhead.terms(context, batch_size),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Largest values that fit beside the other one of the plan; 0 where nothing fits.

    None means that memory sets no limit. `context_is_capped` says that not memory but the model's
    maximum, or a longer context that was asked for, is the limit.
    """

    max_context: int | None
    max_batch_size: int | None
    context_is_capped: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryPlan:
    """The bytes of one rank, and the device that they are for, if one was named."""

    rank: Rank
    workload: Workload
    model_maximum: int | None
    device: Device | None
    utilisation: float

    @property
    def terms(self) -> tuple[Term, ...]:
        return self.rank.terms(self.workload.context, self.workload.batch_size)

    @property
    def total_bytes(self) -> int:
        return self.rank.total_bytes(self.workload.context, self.workload.batch_size)

    @property
    def budget_bytes(self) -> int | None:
        """The part of the device's usable memory that may be planned with."""
        return None if self.device is None else budget(self.device, self.utilisation)

    @property
    def free_bytes(self) -> int | None:
        """What is left of the budget; negative where the plan does not fit."""
        allowed = self.budget_bytes
        return None if allowed is None else allowed - self.total_bytes

    @property
    def fits(self) -> bool | None:
        free = self.free_bytes
        return None if free is None else free >= 0

    @property
    def limits(self) -> Limits | None:
        allowed = self.budget_bytes
        return None if allowed is None else self._limits(allowed)

    def largest_batch(self, context: int) -> int | None:
        """The largest batch that fits at `context` tokens; None without a device or a limit."""
        allowed = self.budget_bytes
        if allowed is None:
            return None
        room = allowed - self.rank.weights_bytes
        each, overhead = self.rank.cache_bytes(context, 1), self.rank.overhead
        return largest(
            lambda batch: each * batch + overhead.total_bytes(context, batch) <= room, ceiling=None
        )

    def _limits(self, allowed: int) -> Limits:
        """A context beyond the model's maximum that was asked for counts as possible."""
        batch = self.workload.batch_size
        ceiling = self.model_maximum and max(self.model_maximum, self.workload.context)
        context = largest(
            lambda tokens: self.rank.total_bytes(tokens, batch) <= allowed, ceiling=ceiling
        )
        return Limits(
            max_context=context,
            max_batch_size=self.largest_batch(self.workload.context),
            context_is_capped=context is not None and context == ceiling,
        )


def budget(device: Device, utilisation: float) -> int:
    return floor(device.usable_memory * utilisation)


def plan_rank(spec: ModelSpec, workload: Workload, weights: Weights, tp: int) -> Rank:
    """What one of `tp` ranks holds; `tp` must be a valid number for `spec`.

    Weights are split evenly but for the projections of K/V heads, or of MLA's latent, that several
    ranks hold.
    """
    extra = ceil(replicated_parameters(spec, tp) * weights.per_attention_parameter)
    copies = f" + {extra:,} B of replicated projections" if extra else ""
    return Rank(
        tp=tp,
        weights_bytes=-(-(weights.total_bytes + extra) // tp),
        weights_formula=f"({weights.formula}{copies}) / {tp}" if tp > 1 else weights.formula,
        cache=rank_cache(
            spec, tp=tp, encoder_tokens=workload.encoder_tokens, bits=workload.kv_bits
        ),
        overhead=plan_overhead(spec, workload, tp),
    )
