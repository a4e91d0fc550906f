"""Memory against context and against the number of requests: the points of two curves."""

from collections.abc import Iterator
from dataclasses import dataclass

from .planning import ServingPlan

_SHORTEST, _MOST, _PLENTY = 1024, 14, 2**62


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """`request_bytes` is what one request of `context` tokens takes of a device's
    cache memory."""

    context: int
    concurrency: float
    request_bytes: int

    def document(self) -> dict[str, object]:
        return {
            "context": self.context,
            "concurrency": round(self.concurrency, 4),
            "request_bytes": self.request_bytes,
        }


def curve(plan: ServingPlan) -> tuple[Point, ...]:
    """Contexts from 1,024 on, each twice the one before, to the model's maximum or the plan's."""
    return tuple(_point(plan, context) for context in _contexts(plan))


def _contexts(plan: ServingPlan) -> Iterator[int]:
    most = max(plan.subject.spec.max_position_embeddings or 0, plan.workload.context)
    context = min(_SHORTEST, most)
    for _ in range(_MOST):
        if context >= most:
            break
        yield context
        context *= 2
    yield most


def _point(plan: ServingPlan, context: int) -> Point:
    """A request's bytes are measured in a memory that is large enough to be free of rounding."""
    plenty = tuple(_PLENTY for _ in plan.available)
    each = plan.pool.concurrency(plenty, context)
    return Point(
        context=context,
        concurrency=plan.pool.concurrency(plan.available, context),
        request_bytes=round(_PLENTY / each) if each else 0,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchPoint:
    """`cache_bytes` is what `batch_size` requests of the plan's context take of each device."""

    batch_size: int
    cache_bytes: int
    fits: bool

    def document(self) -> dict[str, object]:
        return {
            "batch_size": self.batch_size,
            "cache_bytes": self.cache_bytes,
            "fits": self.fits,
        }


def batch_curve(plan: ServingPlan) -> tuple[BatchPoint, ...]:
    """1, 2, 4, ... requests at once, to the first number that does not fit; () without a cache."""
    each = _point(plan, plan.workload.context).request_bytes
    if not each:
        return ()
    found = []
    for power in range(_MOST):
        batch = 1 << power
        fits = plan.available_bytes > 0 and plan.concurrency >= batch
        found.append(BatchPoint(batch_size=batch, cache_bytes=each * batch, fits=fits))
        if not fits:
            break
    return tuple(found)
