"""A plan: what one rank needs on an engine, held against what it may take of a device."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from headcount.model.dtypes import BITS, resolve_dtype
from headcount.model.errors import HeadcountError
from headcount.model.sizes import DEFAULT_CONTEXT
from headcount.model.spec import ModelSpec

from .budget import Budget, Loading, Term
from .engines.engine import Engine, check_options, find_engine
from .engines.launch import Launch, beyond_positions, not_loaded, unlisted
from .engines.pool import CachePool
from .limits import PlanLimits, largest
from .parallel import check_tp
from .planned_model import PlannedModel, narrowed
from .request import UTILISATION, PlanRequest, Workload, flag
from .stored import NAMED_FORMATS, as_format, format_settings, is_stored_as, is_weighed
from .weights import Weights

Verdict = Literal["fits", "borderline", "does not fit", "does not start"]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """`budgets` are those of one rank of each pipeline stage, none where K/V memory was given.
    Bytes are those of one device: of the stage that has the least left."""

    model: PlannedModel
    engine: Engine
    workload: Workload
    budgets: tuple[Budget, ...]
    pool: CachePool

    @property
    def spec(self) -> ModelSpec:
        return self.model.spec

    @property
    def request(self) -> PlanRequest:
        return self.workload.request

    @property
    def weights(self) -> Weights | None:
        return self.workload.weights

    @cached_property
    def available(self) -> tuple[int, ...]:
        """Bytes for the cache on each stage; () without a device."""
        return self._available(self.workload.context, self.workload.batch_size)

    def _available(self, context: int, batch_size: int) -> tuple[int, ...]:
        given = self.request.kv_memory
        if given is not None:
            return (given,) * self.request.pp
        left = [budget.available_bytes(context, batch_size) for budget in self.budgets]
        return tuple(size for size in left if size is not None)

    def _free(self, context: int, batch_size: int) -> list[int]:
        """What each stage has beyond what the batch needs."""
        own = self.request.each_of_dp(batch_size)
        return [
            size - self.pool.needed(context, own, stage) - self.pool.reserved(stage)
            for stage, size in enumerate(self._available(context, own))
        ]

    def holds(self, context: int, batch_size: int) -> bool:
        """Whether a batch of so many tokens each fits. Wants a device, or K/V memory."""
        return (
            self.loads
            and self._has_room(context, batch_size)
            and min(self._free(context, batch_size)) >= 0
        )

    def _has_room(self, context: int, batch_size: int) -> bool:
        """Whether the cache alone fits, which takes less to say than what grows beside it."""
        own = self.request.each_of_dp(batch_size)
        return all(
            budget.fixed_free is None or self.pool.needed(context, own, stage) <= budget.fixed_free
            for stage, budget in enumerate(self.budgets)
        )

    @cached_property
    def _tightest(self) -> int:
        free = self._free(self.workload.context, self.workload.batch_size)
        return free.index(min(free)) if free else 0

    @property
    def budget(self) -> Budget | None:
        """That of the stage with the least left; None where K/V memory was given."""
        return self.budgets[self._tightest] if self.budgets else None

    @property
    def taken(self) -> tuple[Term, ...]:
        """The terms beside the cache, the weights first; () where K/V memory was given."""
        if self.budget is None:
            return ()
        return self.budget.taken(self.workload.context, self.workload.batch_size)

    @property
    def weights_bytes(self) -> int | None:
        """Of one rank, as loaded."""
        return self.taken[0].bytes if self.taken else None

    def needed(self, context: int, batch_size: int) -> int:
        """Bytes of cache of a rank that a batch of so many tokens each takes."""
        return self.pool.needed(context, self.request.each_of_dp(batch_size), self._tightest)

    @property
    def bytes_per_token(self) -> int:
        """Bytes of a rank that one more token costs once every window is full. One that a request
        of this context does not fill is none."""
        return self.pool.bytes_per_token(self.workload.context)

    @property
    def bytes_of_first_token(self) -> int:
        """Bytes of a rank that one token costs while no window is full."""
        return self.pool.bytes_of_first_token(self.workload.context)

    @property
    def kv_cache_bytes(self) -> int:
        """What the batch wants, with what no request gets."""
        reserved = self.pool.reserved(self._tightest)
        return self.needed(self.workload.context, self.workload.batch_size) + reserved

    @property
    def terms(self) -> tuple[Term, ...]:
        """What is needed: weights, cache and the rest; of given K/V memory, only the cache."""
        work = self.workload
        cache = Term(
            key="kv_cache",
            title="KV cache",
            bytes=self.kv_cache_bytes,
            formula=self.pool.formula(
                work.context, self.request.each_of_dp(work.batch_size), self._tightest
            )
            + (" + the null block" if self.pool.reserved(self._tightest) else ""),
        )
        return (*self.taken[:1], cache, *self.taken[1:])

    @cached_property
    def host_terms(self) -> tuple[Term, ...]:
        """What lies in the host's memory, which no device has to have."""
        host = self.engine.host
        return () if host is None else host(self.model, self.workload)

    @cached_property
    def is_kept_by_host(self) -> bool:
        """Whether all of the cache lies in the host's memory, so that no device limits it."""
        context, stages = self.workload.context, range(self.request.pp)
        elsewhere = any(term.key == "kv_cache" for term in self.host_terms)
        return elsewhere and not any(self.pool.needed(context, 1, stage) for stage in stages)

    @property
    def total_bytes(self) -> int:
        return sum(term.bytes for term in self.taken) + self.kv_cache_bytes

    @property
    def budget_bytes(self) -> int | None:
        """What may be taken of the device, or was given for the cache."""
        if self.request.kv_memory is not None:
            return self.request.kv_memory
        allowed = self.budget.allowed if self.budget else None
        return allowed.bytes if allowed else None

    @cached_property
    def free_bytes(self) -> int | None:
        """What is left of it; negative where the plan does not fit."""
        allowed = self.budget_bytes
        return None if allowed is None else allowed - self.total_bytes

    @property
    def fits(self) -> bool | None:
        """Whether the engine starts so and runs the whole batch at once, by the estimates as they
        stand; None where there is nothing to fit in."""
        free = self.free_bytes
        if free is None:
            return None
        return free >= 0 and self.loads and self.runs_at_once and not self.refusals

    @property
    def loading(self) -> Loading | None:
        """What lies on a device while weights load, of the stage that has the least left; None
        where that is no more than what is planned."""
        known = [budget.loading for budget in self.budgets if budget.loading is not None]
        return min(known, key=lambda loading: loading.free_bytes, default=None)

    @property
    def loads(self) -> bool:
        """Whether there is room for the weights while they load."""
        return self.loading is None or self.loading.free_bytes >= 0

    @cached_property
    def refusals(self) -> tuple[str, ...]:
        """Why the engine would not start so, however much memory there is."""
        device, work = self.request.device, self.workload
        found = device and self.engine.not_run_on(device, work.version)
        found = found or not_loaded(self.engine.name, self.model)
        if found:
            return (found,)
        reasons = self.engine.refusals(self.model, device, work)
        return (*reasons, *(self._launch.refusals if self._launch else ()))

    @cached_property
    def _launch(self) -> Launch | None:
        """What the engine says of it; None of one that is not started."""
        launch = self.engine.launch
        if launch is None:
            return None
        if ends := beyond_positions(self.model, self.workload):
            return Launch(command=None, refusals=(ends,))
        return launch(self.model, self.workload, self.kv_tokens)

    @property
    def can_spread_experts(self) -> bool:
        """Whether the engine could deal experts to the ranks whole, which now share each."""
        name = "enable_expert_parallel"
        return name in self.engine.options and not getattr(self.request, name)

    @property
    def most_at_once(self) -> int | None:
        """The most requests that the engine runs at once; None: as many as fit."""
        return self.engine.most_at_once(self.model, self.request.device, self.workload)

    @property
    def runs_at_once(self) -> bool:
        """Whether none of the batch would have to wait for others to end."""
        return self.most_at_once is None or self.workload.batch_size <= self.most_at_once

    @cached_property
    def verdict(self) -> Verdict | None:
        """`borderline` where the estimates' error decides; None where there is nothing to fit in.
        A requirement holds by `low`."""
        if self.free_bytes is None:
            return None
        if self.refusals:
            return "does not start"
        if self.low.fits:
            return "fits"
        return "borderline" if self.high.fits else "does not fit"

    @cached_property
    def low(self) -> "Plan":
        """With all estimates off by their error, and none in the plan's favour."""
        return self._moved(-1)

    @cached_property
    def high(self) -> "Plan":
        """With all estimates off in the plan's favour."""
        return self._moved(1)

    def _moved(self, sign: int) -> "Plan":
        if not self.error_bytes:
            return self
        return replace(self, budgets=tuple(budget.moved(sign) for budget in self.budgets))

    @cached_property
    def limits(self) -> PlanLimits:
        """A context beyond the model's maximum that was asked for counts as possible. What is
        started has a longest context, which is taken for the model's where it states none."""
        if not self.available:
            return PlanLimits()
        work, maximum = self.workload, self.spec.max_position_embeddings
        ceiling = max(maximum or 0, work.context) if maximum or self.engine.starts else None
        context = largest(lambda tokens: self.holds(tokens, work.batch_size), ceiling=ceiling)
        return PlanLimits(
            max_context=context,
            max_batch_size=self.largest_batch(work.context),
            context_is_capped=context is not None and context == ceiling,
        )

    def largest_batch(self, context: int) -> int | None:
        """The largest batch that fits at `context` tokens and runs at once; None if nothing sets a
        limit, as where a model keeps no cache: what an engine is given of it is cut to steps."""
        if not self.spec.is_cached and self.engine.starts:
            return None if self.holds(context, 1) else 0
        ceiling = self.most_at_once if self.spec.is_cached else None
        return largest(lambda batch: self.holds(context, batch), ceiling=ceiling)

    @property
    def utilisation(self) -> float | None:
        """The share of the device's memory that may be taken: what was asked for, or else the
        engine's own; None where K/V memory was given."""
        asked, device = self.request.utilisation, self.request.device
        if self.request.kv_memory is not None or asked is not None:
            return asked if self.request.kv_memory is None else None
        if device is None or not self.engine.starts or self.budget_bytes is None:
            return UTILISATION
        return round(self.budget_bytes / device.usable_memory, 3)

    @property
    def available_bytes(self) -> int:
        """What is left for the cache. Wants a device, or K/V memory."""
        return self.available[self._tightest]

    @property
    def error_bytes(self) -> int:
        """How far off that may be."""
        return self.budget.error_bytes if self.budget else 0

    @property
    def num_blocks(self) -> int | None:
        return self.pool.num_blocks(self.available)

    @property
    def kv_tokens(self) -> int:
        """Of one rank of data parallel, as it logs them."""
        return self.pool.kv_tokens(self.available, self.workload.context)

    @property
    def concurrency(self) -> float:
        """How many requests of the plan's context fit at once, on all ranks of data parallel."""
        return self.concurrency_of(self.workload.context)

    def concurrency_of(self, context: int) -> float:
        """The same of requests of `context` tokens."""
        return self.request.dp * self.pool.concurrency(self.available, context)

    @property
    def at_once(self) -> float:
        """How many requests of the plan's context run at once. Where buffers grow with them, the
        last that the cache has room for may not fit."""
        most = self.most_at_once
        found = self.concurrency if most is None else min(self.concurrency, most)
        batch = self.limits.max_batch_size
        return found if batch is None or found < batch + 1 else batch

    @property
    def limiting_term(self) -> str:
        """The key of what takes most, where the plan does not fit or has the least room."""
        if self.loading is not None and not self.loads:
            return self.loading.peak.key
        if self.available_bytes > 0 or not self.taken:
            return "kv_cache"
        return max(self.taken, key=lambda term: term.bytes).key

    @cached_property
    def launch(self) -> Launch | None:
        """What starts it; None of an engine that is not started."""
        found = self._launch
        if found is None:
            return None
        if self.refusals:
            note = f"{self.engine.name} would not start: {'; '.join(self.refusals)}."
            return Launch(command=None, notes=(note,))
        if found.command is not None and self.model.revision is not None:
            found = found.noting(f"It is of revision {self.model.revision}: say that, too.")
        return found.noting(unlisted(self.engine.listed_as, self.spec.model_type))

    @property
    def launch_command(self) -> str | None:
        """One line for a shell, or for Python where the engine is a library."""
        return self.launch.command if self.launch else None


def plan_model(model: PlannedModel, request: PlanRequest) -> Plan:
    """Plans `request`. Raises HeadcountError for an engine or dtype that is not known, an option
    that the engine does not have, a tp or pp that the model does not allow, and where an engine is
    given neither a device nor memory."""
    engine = find_engine(request.engine)
    check_options(engine, request)
    model = engine.as_run(as_format(model, request.dtype) if request.dtype else model)
    if engine.starts and request.device is None and request.kv_memory is None:
        raise HeadcountError(
            "a plan for an engine needs --device (a name or a size) or --kv-memory"
        )
    check_ranks(request)
    check_tp(model.spec, request.attention_tp, model.model_id)
    _check_pp(model, request)
    return plan_workload(model, engine, _workload(model, request, engine))


def plan_workload(model: PlannedModel, engine: Engine, workload: Workload) -> Plan:
    """The plan of a request that has every default filled in."""
    request = workload.request
    given = request.kv_memory is not None
    return Plan(
        model=model,
        engine=engine,
        workload=workload,
        budgets=() if given else engine.budget(model, request.device, workload),
        pool=engine.pool(model, workload),
    )


def _workload(model: PlannedModel, request: PlanRequest, engine: Engine) -> Workload:
    spec = model.spec
    version = request.version or engine.releases.latest()
    dtype = _loaded_dtype(model, request.dtype)
    loaded = model if engine.keeps_float32 or dtype else narrowed(model)
    compute = _compute_dtype(dtype, loaded.spec.dtype)
    can_do_without = request.kv_memory is not None and not is_weighed(model)
    asked = request.encoder_tokens
    return Workload(
        request=request,
        version=version,
        context=request.context or spec.max_position_embeddings or DEFAULT_CONTEXT,
        encoder_tokens=spec.encoder_tokens if asked is None else asked,
        dtype=dtype,
        compute_dtype=compute,
        cache_type=engine.cache_type(model, request, version, compute),
        weights=None if can_do_without else engine.weights(loaded, dtype, compute),
    )


def _loaded_dtype(model: PlannedModel, name: str | None) -> str | None:
    """None for weights that stay as they are stored. Raises HeadcountError."""
    if name is None or format_settings(name) is not None or is_stored_as(model, name):
        return None
    try:
        return resolve_dtype(name)
    except HeadcountError as error:
        further = ", ".join(each for each in NAMED_FORMATS if each not in BITS)
        raise HeadcountError(f"{error}, {further}, and q4_k_m and the like") from error


def _compute_dtype(*wanted: str | None) -> str:
    """The first that can be computed in: weights of 8 bits or fewer are used at 16."""
    return next((name for name in wanted if name is not None and BITS[name] >= 16), "bfloat16")


def check_ranks(request: PlanRequest) -> None:
    """Raises HeadcountError for ranks that do not share those of tp evenly."""
    for name, count in (("dp", request.dp), ("ep_size", request.ep_size)):
        if (name == "ep_size" or request.enable_dp_attention) and request.tp % count:
            raise HeadcountError(
                f"{flag(name)} {count} does not divide --tp {request.tp}, whose ranks it is of"
            )


def _check_pp(model: PlannedModel, request: PlanRequest) -> None:
    layers, pp, partition = len(model.spec.layers), request.pp, request.pp_layer_partition
    if not 1 <= pp <= layers:
        raise HeadcountError(
            f"pp {pp} does not split {model.model_id}: it has {layers} layers; valid are"
            f" 1 to {layers}"
        )
    if partition is None:
        return
    if len(partition) != pp or sum(partition) != layers or min(partition) < 1:
        counts = ",".join(map(str, partition))
        raise HeadcountError(
            f"--pp-layer-partition {counts}: {len(partition)} stages with {sum(partition)} layers"
            f" in all; {model.model_id} has {layers} layers, and --pp is {pp}: that many numbers"
            f" above 0 whose sum is {layers} are meant"
        )
