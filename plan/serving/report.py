"""A plan for an engine as facts, tables and notes."""

from collections.abc import Iterator, Sequence

from headcount.model.units import format_bytes
from headcount.report.report import Column, Fact, Table

from ..engines.version import version_note
from .changes import Change
from .conversion import Bought
from .curves import Point
from .gate import Held
from .launch import launch_command
from .planning import ServingPlan
from .search import Option


def engine_facts(
    plan: ServingPlan, changes: Sequence[Change], held: Sequence[Held]
) -> Iterator[Fact]:
    """The verdict first, then what is left for the cache and what that serves."""
    yield _verdict(plan)
    if changes:
        others = [change.text for change in changes[1:]]
        note = f"or {', '.join(others)}" if others else ""
        yield Fact("smallest_change", "Would fit with", changes[0].text, "text", note)
    yield Fact("context", "Context", plan.workload.context, "tokens")
    yield Fact("batch_size", "Requests at once", plan.workload.batch_size, "count")
    yield _available(plan)
    yield from _capacity(plan)
    yield from (_held(item) for item in held)
    yield Fact("launch_command", "Start with", launch_command(plan))


def _capacity(plan: ServingPlan) -> Iterator[Fact]:
    pool, tokens, batch = plan.pool, plan.workload.context, plan.workload.batch_size
    if plan.num_blocks is not None and pool.block_size and pool.block_size > 1:
        note = f"of {pool.block_size:,} tokens"
        yield Fact("num_blocks", "Blocks", plan.num_blocks, "count", note)
    yield Fact("kv_tokens", "KV cache size", plan.kv_tokens, "tokens", "as the engine logs it")
    each = "of a long request, on each device"
    yield Fact("bytes_per_token", "Bytes per token", pool.bytes_per_token, "exact_bytes", each)
    at_once, note = f"{plan.concurrency:,.2f}x", f"requests of {tokens:,} tokens"
    yield Fact("concurrency", "Concurrency", at_once, "text", note)
    note = f"with {batch:,} at once"
    yield Fact("max_context", "Largest context", plan.max_context, "tokens", note)
    yield Fact("limiting_term", "Limited by", plan.limiting_term.replace("_", " "))


def _verdict(plan: ServingPlan) -> Fact:
    request = plan.request
    name = f"{request.engine} {request.version.text}".strip()
    devices = request.tp * request.pp
    on = f"{devices} x " if devices > 1 else ""
    where = "the K/V memory given"
    if request.device is not None and request.kv_memory is None:
        where = on + request.device.name
    if plan.available_bytes <= 0:
        value = f"does not fit: {format_bytes(-plan.available_bytes)} short before any cache"
    elif not plan.subject.spec.is_cached:
        value = "fits: the model keeps no cache"
    elif not plan.fits:
        value = f"does not fit: {plan.concurrency:,.2f} of {plan.workload.batch_size:,} requests"
    else:
        value = f"fits: {plan.workload.batch_size:,} of {plan.concurrency:,.2f} possible requests"
    return Fact("verdict", "Verdict", value, "text", f"{name} on {where}")


def _available(plan: ServingPlan) -> Fact:
    budget, free = plan.budget, plan.available_bytes
    note = "given"
    if budget is not None:
        note = f"of each device, within {format_bytes(budget.error_bytes)}"
    return Fact("available_kv_bytes", "Available for the cache", free, "bytes", note)


def _held(item: Held) -> Fact:
    value = "holds" if item.holds else "does not hold"
    title, note = f"Requires {item.requirement.text}", f"found {item.found}"
    return Fact("requirement", title, value, "text", note)


def engine_tables(
    plan: ServingPlan, points: Sequence[Point], rows: Sequence[Bought]
) -> Iterator[Table]:
    """The budget, concurrency against context, and what a conversion buys."""
    if plan.budget is not None:
        yield _budget(plan)
    yield _curve(points)
    if rows:
        yield _conversion(rows)


def _budget(plan: ServingPlan) -> Table:
    budget = plan.budget
    assert budget is not None
    taken = [(t.title, -t.bytes, t.error_bytes, t.formula, t.source) for t in budget.taken]
    allowed = budget.allowed
    return Table(
        key="engine_budget",
        title="Budget of each device" + (", on the tightest stage" if plan.request.pp > 1 else ""),
        columns=(
            Column("term", "Term"),
            Column("bytes", "Bytes", "bytes"),
            Column("error_bytes", "+/-", "bytes"),
            Column("formula", "Formula"),
            Column("source", "From"),
        ),
        rows=(
            (allowed.title, allowed.bytes, allowed.error_bytes, allowed.formula, allowed.source),
            *taken,
            ("Left for the cache", budget.available_bytes, budget.error_bytes, "", ""),
        ),
    )


def _curve(points: Sequence[Point]) -> Table:
    return Table(
        key="engine_curve",
        title="Requests at once by context",
        columns=(
            Column("context", "Context", "tokens"),
            Column("request_bytes", "Cache of one request", "bytes"),
            Column("concurrency", "Requests at once"),
        ),
        rows=tuple((p.context, p.request_bytes, f"{p.concurrency:,.2f}") for p in points),
    )


def _conversion(rows: Sequence[Bought]) -> Table:
    return Table(
        key="engine_conversion",
        title="With other K/V heads",
        columns=(
            Column("name", "Cache"),
            Column("bytes_per_token", "Bytes per token", "exact_bytes"),
            Column("kv_tokens", "KV cache size", "tokens"),
            Column("concurrency", "Requests at once"),
            Column("max_context", "Largest context", "tokens"),
            Column("kv_copies", "Copies", "count"),
            Column("replicated_kv_bytes", "Memory for copies", "bytes"),
        ),
        rows=tuple(
            (
                row.name + (" (as it is)" if row.is_current else ""),
                row.plan.pool.bytes_per_token,
                row.plan.kv_tokens,
                f"{row.plan.concurrency:,.2f}",
                row.plan.max_context,
                row.copies,
                row.waste_bytes,
            )
            for row in rows
        ),
    )


def search_table(found: Sequence[Option]) -> Table:
    """What fits where, by the engine."""
    return Table(
        key="engine_devices",
        title="What fits where",
        columns=(
            Column("device", "Device"),
            Column("tp", "tp", "count"),
            Column("total_memory", "Memory in all", "bytes"),
            Column("fits", "Fits"),
            Column("available_kv_bytes", "For the cache of each", "bytes"),
            Column("kv_tokens", "KV cache size", "tokens"),
            Column("concurrency", "Requests at once"),
            Column("max_context", "Largest context", "tokens"),
        ),
        rows=tuple(
            (
                option.device.key,
                option.tp,
                option.total_memory,
                "yes" if option.plan.fits else "no",
                option.plan.available_bytes,
                option.plan.kv_tokens,
                f"{option.plan.concurrency:,.2f}",
                option.plan.max_context,
            )
            for option in found
        ),
    )


def engine_notes(plan: ServingPlan) -> Iterator[str]:
    """What may make the figures wrong, and what is particular to the engine."""
    request = plan.request
    limit = plan.subject.spec.max_position_embeddings
    if limit is not None and plan.workload.context > limit:
        yield (
            f"Warning: The context of {plan.workload.context:,} tokens is beyond the model's"
            f" maximum of {limit:,}: planned anyway."
        )
    if note := version_note(request.engine, request.version):
        yield f"Warning: {note}"
    if not plan.subject.spec.is_cached:
        yield "The model keeps no cache: it sees a sequence whole, and the cache limits nothing."
    if plan.budget is not None:
        yield (
            "Of the budget, terms with a +/- are estimates; docs/engines.md holds them against"
            " start-up logs."
        )
    yield from plan.pool.notes()
