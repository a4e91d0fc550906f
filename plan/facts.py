"""The head of a plan's report: the verdict first, then what was planned, then the limits."""

from collections.abc import Iterator

from headcount.model.units import format_bytes
from headcount.report.report import Fact

from .memory import MemoryPlan
from .planning import ModelPlan
from .replication import replication


def plan_facts(plan: ModelPlan) -> Iterator[Fact]:
    """The lines that a person pastes in a report."""
    yield _verdict(plan)
    yield from _request(plan)
    yield from _cache(plan)
    yield from _copies(plan)
    yield from _limits(plan)
    yield from _speed(plan)


def _verdict(plan: ModelPlan) -> Fact:
    memory, device = plan.memory, plan.request.device
    each = f"on each of {plan.request.tp} devices" if plan.request.tp > 1 else "on one device"
    if device is None:
        fitting = sum(bool(placement.plan.fits) for placement in plan.placements)
        where = f"enough for {fitting} of {len(plan.placements)} devices of the table"
        value = f"needs {format_bytes(memory.total_bytes)} {each}"
        return Fact(key="verdict", title="Verdict", value=value, note=where)
    value = _against_budget(memory)
    usable = format_bytes(device.usable_memory)
    note = f"{each}, {device.name}: {plan.request.utilisation:.2f} x {usable} usable"
    return Fact(key="verdict", title="Verdict", value=value, note=note)


def _against_budget(memory: MemoryPlan) -> str:
    needed, allowed, free = memory.total_bytes, memory.budget_bytes, memory.free_bytes
    assert allowed is not None and free is not None
    of = f"{format_bytes(needed)} of {format_bytes(allowed)}"
    if free >= 0:
        return f"fits: {of}, {format_bytes(free)} free"
    return f"does not fit: {of}, {format_bytes(-free)} short"


def _request(plan: ModelPlan) -> Iterator[Fact]:
    workload, request = plan.workload, plan.request
    yield Fact(
        key="context",
        title="Context",
        value=workload.context,
        unit="tokens",
        note=_context_source(plan),
    )
    if workload.encoder_tokens:
        yield Fact(
            key="encoder_tokens",
            title="Encoder tokens",
            value=workload.encoder_tokens,
            unit="tokens",
            note="the model's maximum" if request.encoder_tokens is None else "",
        )
    yield Fact(key="batch_size", title="Batch", value=workload.batch_size, unit="count")
    yield Fact(
        key="weights",
        title="Weights",
        value=plan.weights.total_bytes,
        unit="bytes",
        note=plan.weights.formula,
    )


def _context_source(plan: ModelPlan) -> str:
    if plan.request.context is not None:
        return ""
    return "assumed" if plan.spec.max_position_embeddings is None else "the model's maximum"


def _cache(plan: ModelPlan) -> Iterator[Fact]:
    if not plan.spec.is_cached:
        return
    cache = plan.memory.rank.cache
    growth, first = cache.bytes_per_token(), cache.bytes_of_first_token()
    yield Fact(
        key="kv_cache_bytes_of_first_token",
        title="KV cache per token",
        value=first,
        unit="exact_bytes",
        note=plan.workload.kv_dtype + (" on each device" if plan.request.tp > 1 else ""),
    )
    if first != growth:
        yield Fact(
            key="kv_cache_bytes_per_token",
            title="and a further token",
            value=growth,
            unit="exact_bytes",
            note="once every window is full",
        )


def _copies(plan: ModelPlan) -> Iterator[Fact]:
    found = replication(plan)
    if found.copies > 1 and plan.spec.is_cached:
        yield Fact(
            key="kv_copies",
            title="K/V copies",
            value=found.copies,
            unit="count",
            note=f"{format_bytes(found.cache_bytes)} of the cache of all devices is copies",
        )


def _limits(plan: ModelPlan) -> Iterator[Fact]:
    limits = plan.memory.limits
    if limits is None:
        return
    context = "unbounded" if limits.max_context is None else limits.max_context
    cap = _cap(plan) if limits.context_is_capped else ""
    yield Fact(
        key="max_context",
        title="Largest context",
        value=context,
        unit="tokens",
        note=f"at batch {plan.workload.batch_size:,}{cap}",
    )
    yield Fact(
        key="max_batch_size",
        title="Largest batch",
        value="unbounded" if limits.max_batch_size is None else limits.max_batch_size,
        unit="count",
        note=f"at {plan.workload.context:,} tokens each",
    )


def _cap(plan: ModelPlan) -> str:
    longer = plan.workload.context > (plan.spec.max_position_embeddings or 0)
    return ", as asked for" if longer else ", the model's maximum"


def _speed(plan: ModelPlan) -> Iterator[Fact]:
    device = plan.request.device
    rate = plan.decode_rate(device) if device is not None else None
    if rate is not None:
        yield Fact(
            key="decode_tokens_per_second",
            title="Decoding, at most",
            value=rate,
            unit="rate",
            note="tokens of each sequence, by memory bandwidth",
        )
