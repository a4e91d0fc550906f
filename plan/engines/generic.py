"""The plan without an engine: weights, whole sequences of cache, a runtime, activations."""

from math import floor

from headcount.model.dtypes import CACHE_BITS, resolve_cache_dtype
from headcount.model.errors import HeadcountError
from headcount.model.units import format_bytes

from ..budget import Budget, Term
from ..cache import RankCache, rank_cache
from ..devices import Device
from ..overhead import plan_overhead
from ..planned_model import PlannedModel
from ..request import UTILISATION, CacheType, PlanRequest, Workload
from ..weights import plan_weights, rank_weights
from .cache_names import AUTO
from .engine import Engine
from .kv_formats import ENGINE_DTYPES
from .version import Version


def _budget(model: PlannedModel, device: Device | None, work: Workload) -> tuple[Budget, ...]:
    request = work.request
    assert work.weights is not None
    size, formula = rank_weights(model, work.weights, request.tp)
    return (
        Budget(
            allowed=_allowed(device, request.utilisation or UTILISATION) if device else None,
            fixed=(Term(key="weights", title="Weights", bytes=size, formula=formula),),
            growing=plan_overhead(model.spec, work),
        ),
    )


def _allowed(device: Device, utilisation: float) -> Term:
    return Term(
        key="requested",
        title="Planned with",
        bytes=floor(device.usable_memory * utilisation),
        formula=f"{utilisation:.2f} x {format_bytes(device.usable_memory)} usable",
    )


def _pool(model: PlannedModel, work: Workload) -> RankCache:
    return rank_cache(
        model, tp=work.request.tp, encoder_tokens=work.encoder_tokens, bits=work.kv_bits
    )


def _cache_type(
    model: PlannedModel, request: PlanRequest, version: Version, compute_dtype: str
) -> CacheType:
    name = request.kv_dtype
    if name in ENGINE_DTYPES:
        raise HeadcountError(f"{name} is a layout of an engine's own: name the one with --engine")
    found = resolve_cache_dtype(name) if name not in (None, AUTO) else compute_dtype
    return CacheType(found, CACHE_BITS[found])


ENGINE = Engine(
    name="generic",
    budget=_budget,
    pool=_pool,
    launch=None,
    cache_type=_cache_type,
    weights=plan_weights,
)
