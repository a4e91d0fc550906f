"""The plan without an engine: weights, whole sequences of cache, a runtime, activations."""

from math import floor

from headcount.model.dtypes import BITS, resolve_dtype
from headcount.model.errors import HeadcountError
from headcount.model.units import format_bytes

from ..budget import Budget, Term
from ..cache import RankCache, rank_cache
from ..devices import Device
from ..overhead import plan_overhead
from ..planned_model import PlannedModel
from ..request import UTILISATION, CacheType, PlanRequest, Workload
from ..weights import plan_weights, rank_weights
from .engine import Engine
from .llama_cpp.cache_types import BLOCKS
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
    name = _named(request.kv_dtype) if request.kv_dtype else compute_dtype
    return CacheType(name, BITS[name])


def _named(kv_dtype: str) -> str:
    """Raises HeadcountError, with the engine that has such a cache."""
    try:
        return resolve_dtype(kv_dtype)
    except HeadcountError as error:
        if kv_dtype.lower() not in BLOCKS:
            raise
        raise HeadcountError(
            f"--kv-dtype {kv_dtype} is a type of llama.cpp's: plan with --engine llama.cpp"
        ) from error


ENGINE = Engine(
    name="generic",
    budget=_budget,
    pool=_pool,
    launch=None,
    cache_type=_cache_type,
    weights=plan_weights,
)
