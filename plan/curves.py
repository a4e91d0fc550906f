"""Memory against context and against the number of requests: the points of two curves."""

from collections.abc import Iterator
from typing import NamedTuple

from headcount.model.spec import ModelSpec

from .plan import Plan

_SHORTEST, _MOST = 1024, 14


class ContextPoint(NamedTuple):
    """`request_bytes` is what one request of `context` tokens takes of a device's cache memory."""

    context: int
    concurrency: float
    request_bytes: int

    def document(self) -> dict[str, object]:
        return {
            "context": self.context,
            "concurrency": round(self.concurrency, 4),
            "request_bytes": self.request_bytes,
        }


class BatchPoint(NamedTuple):
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


def contexts(spec: ModelSpec, asked: int) -> tuple[int, ...]:
    """From 1,024 on, each twice the one before, to the model's maximum or what is asked for."""
    most = max(spec.max_position_embeddings or 0, asked)
    found = [min(_SHORTEST, most)]
    while found[-1] * 2 < most and len(found) < _MOST:
        found.append(found[-1] * 2)
    return tuple(dict.fromkeys((*found, most)))


def context_curve(plan: Plan) -> tuple[ContextPoint, ...]:
    """Wants a device, or K/V memory."""
    return tuple(
        ContextPoint(
            context=context,
            concurrency=plan.concurrency_of(context),
            request_bytes=plan.needed(context, 1),
        )
        for context in contexts(plan.spec, plan.workload.context)
    )


def batch_curve(plan: Plan) -> Iterator[BatchPoint]:
    """1, 2, 4, ... requests at once, to the first number that does not fit; none without a
    cache."""
    context, batch = plan.workload.context, 1
    while plan.needed(context, 1) and batch < 1 << _MOST:
        fits = plan.holds(context, batch)
        yield BatchPoint(batch_size=batch, cache_bytes=plan.needed(context, batch), fits=fits)
        batch = batch * 2 if fits else 1 << _MOST
