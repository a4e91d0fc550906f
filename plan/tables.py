"""The tables of a plan's report: memory by term, limits, what fits where, other K/V heads."""

from collections.abc import Iterator

from headcount.model.units import format_bytes
from headcount.report.report import Column, Table

from .placement import Placement
from .planning import ModelPlan, VariantPlan

_SHORTEST, _MOST_ROWS = 1024, 8


def plan_tables(plan: ModelPlan) -> Iterator[Table]:
    """Those that have something to say; limits want a device, what fits where wants none."""
    yield memory_table(plan)
    if plan.request.device is not None:
        yield limits_table(plan)
    if plan.placements:
        yield placement_table(plan)
    if len(plan.variants) > 1:
        yield variant_table(plan)


def memory_table(plan: ModelPlan) -> Table:
    """The terms, their sum and, with a device, what it has."""
    memory, device = plan.memory, plan.request.device
    total = memory.total_bytes
    rows: list[tuple[object, ...]] = [
        (term.title, term.bytes, 100 * term.bytes / total, term.formula) for term in memory.terms
    ]
    rows.append(("Total", total, 100.0, ""))
    if device is not None:
        usable = format_bytes(device.usable_memory)
        formula = f"{plan.request.utilisation:.2f} x {usable} usable"
        rows.append(("Planned with", memory.budget_bytes, None, formula))
        rows.append(("Free", memory.free_bytes, None, ""))
    return Table(
        key="memory",
        title="Memory of each device" if plan.request.tp > 1 else "Memory",
        columns=(
            Column(key="term", title="Term"),
            Column(key="bytes", title="Bytes", unit="bytes"),
            Column(key="share", title="Share", unit="percent"),
            Column(key="formula", title="Formula"),
        ),
        rows=tuple(rows),
    )


def limits_table(plan: ModelPlan) -> Table:
    """For contexts down from the largest by halves: bytes per sequence and the largest batch."""
    memory = plan.memory
    return Table(
        key="limits",
        title="Largest batch by context",
        columns=(
            Column(key="context", title="Context", unit="tokens"),
            Column(key="cache_bytes", title="KV cache per sequence", unit="bytes"),
            Column(key="max_batch_size", title="Largest batch", unit="count"),
        ),
        rows=tuple(
            (context, memory.rank.cache_bytes(context, 1), memory.largest_batch(context))
            for context in limit_contexts(plan)
        ),
    )


def limit_contexts(plan: ModelPlan) -> tuple[int, ...]:
    """The context of the plan, and the model's maximum halved down to 1,024 tokens."""
    longest = max(plan.spec.max_position_embeddings or 0, plan.workload.context)
    halves = [longest]
    while halves[-1] // 2 >= _SHORTEST and len(halves) < _MOST_ROWS:
        halves.append(halves[-1] // 2)
    return tuple(sorted({*halves, plan.workload.context}))


def placement_table(plan: ModelPlan) -> Table:
    """Every device of the table; a negative amount of free memory is what is missing."""
    return Table(
        key="devices",
        title=f"What fits where, tp {plan.request.tp}",
        columns=(
            Column(key="device", title="Device"),
            Column(key="budget_bytes", title="Planned with", unit="bytes"),
            Column(key="fits", title="Fits"),
            Column(key="free_bytes", title="Free", unit="bytes"),
            Column(key="max_context", title="Largest context", unit="tokens"),
            Column(key="max_batch_size", title="Largest batch", unit="count"),
            Column(key="smallest_tp", title="Smallest tp", unit="count"),
            Column(key="decode_tokens_per_second", title="Tokens/s at most", unit="rate"),
        ),
        rows=tuple(_placement_row(plan, placement) for placement in plan.placements),
    )


def _placement_row(plan: ModelPlan, placement: Placement) -> tuple[object, ...]:
    memory, limits = placement.plan, placement.limits
    return (
        placement.device.key,
        memory.budget_bytes,
        memory.fits,
        memory.free_bytes,
        limits.max_context,
        limits.max_batch_size,
        placement.smallest_tp,
        plan.decode_rate(placement.device) if memory.fits else None,
    )


def variant_table(plan: ModelPlan) -> Table:
    """The plan with other K/V heads; the model's own row is marked."""
    columns = [
        Column(key="num_key_value_heads", title="K/V heads"),
        Column(key="name", title="Kind"),
        Column(key="kv_cache_bytes_of_first_token", title="Per token", unit="bytes"),
        Column(key="kv_cache_bytes", title="KV cache", unit="bytes"),
        Column(key="weights_bytes", title="Weights", unit="bytes"),
        Column(key="total_bytes", title="Total", unit="bytes"),
        Column(key="mha_ratio", title="Model below MHA", unit="ratio"),
    ]
    if plan.request.device is not None:
        columns += [
            Column(key="fits", title="Fits"),
            Column(key="max_context", title="Largest context", unit="tokens"),
            Column(key="max_batch_size", title="Largest batch", unit="count"),
        ]
    rows = (_variant_row(row) for row in plan.variants)
    return Table(
        key="what_if",
        title="With other K/V heads",
        columns=tuple(columns),
        rows=tuple(row[: len(columns)] for row in rows),
    )


def _variant_row(row: VariantPlan) -> tuple[object, ...]:
    variant, memory = row.variant, row.memory
    kind = f"{variant.name}, as it is" if variant.is_current else variant.name
    heads = variant.num_key_value_heads
    if memory is None:
        return (heads, f"{kind}: tp does not suit", *(None,) * 4, row.mha_ratio, *(None,) * 3)
    workload, limits = memory.workload, memory.limits
    return (
        heads,
        kind,
        memory.rank.cache.bytes_of_first_token(),
        memory.rank.cache_bytes(workload.context, workload.batch_size),
        memory.rank.weights_bytes,
        memory.total_bytes,
        row.mha_ratio,
        memory.fits,
        limits.max_context if limits else None,
        limits.max_batch_size if limits else None,
    )
