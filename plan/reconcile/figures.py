"""Each logged figure recomputed: the prediction, how far off it may be, whether both agree."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ..plan import Plan, plan_model
from ..stored import is_weighed
from .start import Start

_GIB, _HALF_STEP = 2**30, 0.005  # GiB that the rounding of a log hides


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """`predicted`, `low` and `high` are None where nothing is known to predict from, and then
    `agrees` is None too."""

    figure: str
    logged: float
    predicted: float | None
    low: float | None
    high: float | None
    agrees: bool | None
    why: str

    def document(self) -> dict[str, object]:
        return {
            "figure": self.figure,
            "logged": self.logged,
            "predicted": self.predicted,
            "low": self.low,
            "high": self.high,
            "agrees": self.agrees,
            "why": self.why,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Basis:
    """The plans at the least and the most memory for the cache, and in words where it is from."""

    low: Plan
    middle: Plan
    high: Plan
    words: str


def bounds(start: Start) -> Basis | None:
    """From the cache memory of the log, which is rounded; else from the budget, with its error;
    None where there is neither."""
    logged = start.log.figures.get("available_gib")
    if logged is not None:
        step = _HALF_STEP * int(start.log.settings.get("sizes_added", 1))
        pool = _with_memory(start, int(logged * _GIB)).pool
        ends = [pool.unlogged(int((logged + d) * _GIB)) for d in (-step, 0, step)]
        words = f"from the logged {logged:g} GiB, rounded to 0.01"
    elif start.request.device is not None:
        plan = plan_model(start.model, start.request)
        ends = [plan.available_bytes + d * plan.error_bytes for d in (-1, 0, 1)]
        words = "from the budget of the device, an estimate"
    else:
        return None
    low, middle, high = (_with_memory(start, size) for size in ends)
    return Basis(low=low, middle=middle, high=high, words=words)


def _with_memory(start: Start, size: int) -> Plan:
    return plan_model(start.model, replace(start.request, kv_memory=size))


_OF_PLAN: dict[str, Callable[[Plan], float | None]] = {
    "kv_tokens": lambda plan: plan.kv_tokens,
    "num_blocks": lambda plan: plan.num_blocks,
    "concurrency": lambda plan: round(plan.concurrency, 2),
}


def figures(start: Start) -> Iterator[Figure]:
    """Every figure that the log has, recomputed."""
    basis = bounds(start)
    for name in _OF_PLAN:
        if name in start.log.figures:
            yield of_plan(name, start.log.figures[name], basis)
    if "weights_gib" in start.log.figures:
        yield _weights(start)
    if "available_gib" in start.log.figures:
        yield _available(start)


def of_plan(name: str, logged: float, basis: Basis | None) -> Figure:
    """A count of the cache, between those of the least and the most memory."""
    found = _OF_PLAN[name]
    value = int(logged) if name != "concurrency" else logged
    if basis is None:
        return _unknown(name, value, "neither cache memory nor a device is known: --device")
    low, middle, high = found(basis.low), found(basis.middle), found(basis.high)
    if low is None or middle is None or high is None:
        return _unknown(name, value, "the engine has no blocks")
    return Figure(
        figure=name,
        logged=value,
        predicted=middle,
        low=low,
        high=high,
        agrees=low <= value <= high,
        why=basis.words,
    )


def _unknown(name: str, logged: float, why: str) -> Figure:
    return Figure(
        figure=name, logged=logged, predicted=None, low=None, high=None, agrees=None, why=why
    )


def _weights(start: Start) -> Figure:
    """The rank's weights need no device: any gives the same."""
    from ..devices import parse_device

    logged = round(start.log.figures["weights_gib"] * _GIB)
    device = start.request.device or parse_device("80GiB")
    request = replace(start.request, device=device, kv_memory=None)
    if not is_weighed(start.model):
        return _unknown("weights_bytes", logged, "the model's parameters are not known")
    term = plan_model(start.model, request).taken[0]
    error = term.error_bytes + round(_HALF_STEP * _GIB)
    return _between("weights_bytes", logged, term.bytes, error, term.formula)


def _between(name: str, logged: int, predicted: int, error: int, why: str) -> Figure:
    return Figure(
        figure=name,
        logged=logged,
        predicted=predicted,
        low=predicted - error,
        high=predicted + error,
        agrees=abs(predicted - logged) <= error,
        why=why,
    )


def _available(start: Start) -> Figure:
    logged = round(start.log.figures["available_gib"] * _GIB)
    name = "available_kv_bytes"
    if start.request.device is None:
        return _unknown(name, logged, "the device is not known: --device NAME or a size")
    if not is_weighed(start.model):
        return _unknown(name, logged, "the model's parameters are not known")
    plan = plan_model(start.model, start.request)
    error = plan.error_bytes + round(_HALF_STEP * _GIB)
    taken = ", ".join(f"{t.title.lower()} {t.bytes / _GIB:.2f}" for t in plan.taken)
    allowed = plan.budget.allowed if plan.budget else None
    why = f"{allowed.formula if allowed else ''}, less {taken} GiB"
    return _between(name, logged, plan.available_bytes, error, why)
