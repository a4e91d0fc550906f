"""A plan for an engine: its budget, its pool, and what they serve together."""

from dataclasses import dataclass, replace
from functools import cached_property

from headcount.model.dtypes import BITS
from headcount.model.errors import HeadcountError

from ..devices import Device
from ..engines.pool import Pool
from ..engines.terms import Budget
from ..limits import largest
from ..parallel import check_tp
from ..request import UTILISATION, PlanRequest, Workload, resolve_workload
from ..weights import plan_weights
from .budgets import budgets
from .pools import make_pool, plain_kv_dtype
from .request import ServingRequest, Subject


@dataclass(frozen=True, kw_only=True)
class ServingPlan:
    """`available` is what each stage has for the cache, in bytes of one rank."""

    subject: Subject
    request: ServingRequest
    workload: Workload
    budgets: tuple[Budget, ...]
    available: tuple[int, ...]
    pool: Pool

    @property
    def budget(self) -> Budget | None:
        """That of the stage with the least left; None where K/V memory was given."""
        return min(self.budgets, key=lambda budget: budget.available_bytes, default=None)

    @property
    def share(self) -> float | None:
        """The part of a device's visible memory that the engine may take; None without a device."""
        device, budget = self.request.device, self.budget
        return None if device is None or budget is None else share_of(self.request, budget, device)

    @property
    def available_bytes(self) -> int:
        return min(self.available)

    @property
    def num_blocks(self) -> int | None:
        return self.pool.num_blocks(self.available)

    @property
    def kv_tokens(self) -> int:
        return self.pool.kv_tokens(self.available, self.workload.context)

    @property
    def concurrency(self) -> float:
        """How many requests of the plan's context fit at once."""
        return self.pool.concurrency(self.available, self.workload.context)

    @property
    def fits(self) -> bool:
        """Whether the batch fits, each request at the plan's context."""
        return self.available_bytes > 0 and self._holds(self.workload.context)

    def _holds(self, context: int) -> bool:
        """Whether the cache of the batch fits; a model that keeps none has nothing to fit."""
        if not self.subject.spec.is_cached:
            return True
        return self.pool.concurrency(self.available, context) >= self.workload.batch_size

    @cached_property
    def max_context(self) -> int:
        """The largest context at which the batch fits, at most the model's, or a longer one that
        was asked for; 0 where none does."""
        if self.available_bytes <= 0:
            return 0
        maximum = self.subject.spec.max_position_embeddings
        ceiling = max(maximum or 0, self.workload.context)
        found = largest(self._holds, ceiling=ceiling)
        return ceiling if found is None else found

    @property
    def limiting_term(self) -> str:
        """The key of what takes most, where the plan does not fit or has the least room."""
        budget = self.budget
        if budget is None or self.available_bytes > 0:
            return "kv_cache"
        return max(budget.taken, key=lambda term: term.bytes).key


def plan_serving(subject: Subject, request: ServingRequest) -> ServingPlan:
    """Plans `request`. Raises HeadcountError for a tp or pp that the model does not allow, for an
    unknown dtype, and where neither a device nor K/V memory is given."""
    if request.device is None and request.kv_memory is None:
        raise HeadcountError(
            "a plan for an engine needs --device (a name or a size) or --kv-memory"
        )
    check_tp(subject.spec, request.tp, subject.model_id)
    _check_pp(subject, request)
    workload = resolve_workload(plain_request(request), subject.spec)
    found = () if request.kv_memory is not None else _budgets(subject, request, workload)
    given = request.kv_memory
    available = (
        tuple(budget.available_bytes for budget in found)
        if given is None
        else tuple(given for _ in range(request.pp))
    )
    return ServingPlan(
        subject=subject,
        request=request,
        workload=workload,
        budgets=found,
        available=available,
        pool=make_pool(subject, request, workload),
    )


# What an engine does when it is asked to load weights in fewer bits: linear layers only.
_ON_LOADING: dict[int, dict[str, object]] = {
    8: {"quant_method": "fp8"},
    4: {"quant_method": "bitsandbytes", "load_in_4bit": True},
}


def _budgets(subject: Subject, request: ServingRequest, workload: Workload) -> tuple[Budget, ...]:
    """Embeddings and output head stay as they are where weights are quantised on loading."""
    narrow = _ON_LOADING.get(BITS[workload.dtype]) if workload.dtype else None
    if narrow is not None:
        config = {**subject.config, "quantization_config": narrow}
        subject = replace(subject, config=config, weights_bytes=None)
        workload = replace(workload, dtype=None)
    weights = plan_weights(
        subject.spec,
        workload,
        weights_bytes=subject.weights_bytes,
        config=subject.config,
        model_id=subject.model_id,
    )
    return budgets(subject, request, workload, weights)


def plain_request(request: ServingRequest) -> PlanRequest:
    """The part of a request that does not depend on an engine. The names of an engine's own types
    of cache are read by its pool."""
    kv_dtype = plain_kv_dtype(request.kv_dtype) if request.engine != "llama.cpp" else None
    return PlanRequest(
        context=request.context,
        batch_size=request.batch_size,
        encoder_tokens=request.encoder_tokens,
        dtype=request.dtype,
        kv_dtype=kv_dtype,
        tp=request.tp,
        device=request.device,
        utilisation=request.utilisation or UTILISATION,
    )


def _check_pp(subject: Subject, request: ServingRequest) -> None:
    layers = len(subject.spec.layers)
    if not 1 <= request.pp <= layers:
        raise HeadcountError(
            f"pp {request.pp} does not split {subject.model_id}: it has {layers} layers; valid are"
            f" 1 to {layers}"
        )


def share_of(request: ServingRequest, budget: Budget, device: Device) -> float:
    """The utilisation that was asked for, or the engine's own."""
    return request.utilisation or round(budget.allowed.bytes / device.usable_memory, 3)
