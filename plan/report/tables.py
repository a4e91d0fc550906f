"""The tables of a plan: memory by term, limits, what fits where, other K/V heads."""

from collections.abc import Iterator

from headcount.report.report import Column, Table

from ..decode import decode_rate
from ..hardware.candidates import Placement, placements, telling
from ..plan import Plan
from ..result import PlanResult
from ..what_if.rows import VariantPlan
from .hardware import NAMING, hardware_table, price_cells, price_columns

_SHORTEST, _MOST_ROWS = 1024, 8
_BRIEF_ROWS = 6


def plan_tables(result: PlanResult) -> Iterator[Table]:
    """Those that have something to say; limits want a device, what fits where wants a search."""
    yield _memory_table(result.plan)
    if result.plan.fits is not None:
        yield _limits_table(result.plan)
    rows = list(placements(result.candidates))
    if result.candidates and result.plan.engine.starts:
        yield hardware_table(result)
    elif rows:
        yield _placement_table(result, rows)
    if len(result.variants) > 1:
        yield _variant_table(result)


def _memory_table(plan: Plan) -> Table:
    """The terms, their sum and, with a device, what it has. An engine's terms have error bars."""
    total = plan.total_bytes
    rows: list[tuple[object, ...]] = [
        (
            *(term.title, term.bytes, 100 * term.bytes / total if total else 0.0, term.formula),
            *(term.error_bytes, term.source),
        )
        for term in plan.terms
    ]
    rows.append(("Total", total, 100.0, "", plan.error_bytes, ""))
    if plan.budget_bytes is not None:
        allowed = plan.budget.allowed if plan.budget else None
        words = (allowed.formula, None, allowed.source) if allowed else ("given", None, "")
        rows.append(("Planned with", plan.budget_bytes, None, *words))
        rows.append(("Free", plan.free_bytes, None, "", None, ""))
    stage = ", on the tightest stage" if plan.request.pp > 1 else ""
    columns = (
        Column("term", "Term"),
        Column("bytes", "Bytes", "bytes"),
        Column("share", "Share", "percent", drop=2),
        Column("formula", "Formula"),
        Column("error_bytes", "+/-", "bytes", drop=1),
        Column("source", "From", drop=3),
    )[: 6 if plan.engine.starts else 4]
    return Table(
        key="memory",
        title=("Memory of each device" if plan.request.ranks > 1 else "Memory") + stage,
        columns=columns,
        rows=tuple(row[: len(columns)] for row in rows),
        brief=0,
    )


def _limits_table(plan: Plan) -> Table:
    """For contexts down from the largest by halves: bytes per sequence and the largest batch."""
    return Table(
        key="limits",
        title="Largest batch size by context",
        columns=(
            Column("context", "Context", "tokens"),
            Column("cache_bytes", "KV cache per sequence", "bytes"),
            Column("max_batch_size", "Largest batch size", "count"),
        ),
        rows=tuple(
            (context, plan.needed(context, 1), plan.largest_batch(context))
            for context in limit_contexts(plan)
        ),
        brief=0,
    )


def limit_contexts(plan: Plan) -> tuple[int, ...]:
    """The context of the plan, and the model's maximum halved down to 1,024 tokens."""
    longest = max(plan.spec.max_position_embeddings or 0, plan.workload.context)
    halves = [longest]
    while halves[-1] // 2 >= _SHORTEST and len(halves) < _MOST_ROWS:
        halves.append(halves[-1] // 2)
    return tuple(sorted({*halves, plan.workload.context}))


def _placement_table(result: PlanResult, rows: list[Placement]) -> Table:
    """Every device searched: the smallest that suffices first, of the others the one that lacks
    least. A negative amount of free memory is what is missing. Costs are those of as many as
    suffice."""
    rows = sorted(rows, key=_order)
    return Table(
        key="devices",
        title=f"What fits where, tp {rows[0].plan.request.tp}",
        columns=(
            Column("device", "Device"),
            Column("budget_bytes", "Planned with", "bytes"),
            Column("fits", "Fits"),
            Column("free_bytes", "Free", "bytes"),
            Column("max_context", "Largest context", "tokens"),
            Column("max_batch_size", "Largest batch size", "count"),
            Column("smallest_tp", "Smallest tp", "count", drop=1),
            *price_columns(bool(result.prices)),
            Column("decode_tokens_per_second", "Tokens/s at most", "rate", drop=2),
        ),
        rows=tuple(_placement_row(result, row) for row in rows),
        brief=_BRIEF_ROWS,
        telling=() if result.prices else telling([row.asked for row in rows]),
        asked_for="" if result.named else NAMING,
    )


def _order(placement: Placement) -> tuple[bool, int]:
    plan = placement.plan
    needed = plan.budget_bytes if plan.fits else -(plan.free_bytes or 0)
    return not plan.fits, needed or 0


def _placement_row(result: PlanResult, placement: Placement) -> tuple[object, ...]:
    plan, smallest = placement.plan, placement.smallest
    return (
        placement.device.key,
        plan.budget_bytes,
        plan.fits,
        plan.free_bytes,
        plan.limits.max_context,
        plan.limits.max_batch_size,
        smallest.tp if smallest else None,
        *price_cells(result, smallest),
        decode_rate(plan) if plan.fits else None,
    )


def _variant_table(result: PlanResult) -> Table:
    """The plan with other K/V heads; the model's own row is marked."""
    columns = [
        Column("num_key_value_heads", "K/V heads"),
        Column("name", "Kind"),
        Column("rank_cache_bytes_of_first_token", "Per token", "bytes"),
        Column("kv_cache_bytes", "KV cache", "bytes", drop=1),
        Column("weights_bytes", "Weights", "bytes", drop=4),
        Column("total_bytes", "Total", "bytes"),
        Column("mha_ratio", "Model below MHA", "ratio", drop=3),
    ]
    if result.plan.fits is not None:
        columns += [
            Column("fits", "Fits"),
            Column("max_context", "Largest context", "tokens"),
            Column("max_batch_size", "Largest batch size", "count", drop=2),
        ]
    if result.plan.engine.starts:
        columns += [
            Column("kv_tokens", "KV cache size", "tokens"),
            Column("kv_copies", "Copies", "count", drop=5),
            Column("replicated_kv_bytes", "Memory for copies", "bytes", drop=5),
        ]
    rows = (_variant_row(row) for row in result.variants)
    return Table(
        key="what_if",
        title="With other K/V heads",
        columns=tuple(columns),
        rows=tuple(row[: len(columns)] for row in rows),
        brief=0,
    )


def _variant_row(row: VariantPlan) -> tuple[object, ...]:
    variant, plan = row.variant, row.plan
    kind = f"{variant.name}, as it is" if variant.is_current else variant.name
    heads = variant.num_key_value_heads
    if plan is None:
        return (heads, f"{kind}: tp does not suit", *(None,) * 4, row.mha_ratio, *(None,) * 6)
    engine = (plan.kv_tokens, row.copies, row.waste_bytes) if plan.engine.starts else ()
    return (
        heads,
        kind,
        plan.bytes_of_first_token,
        plan.kv_cache_bytes,
        plan.weights_bytes,
        plan.total_bytes,
        row.mha_ratio,
        plan.fits,
        plan.limits.max_context,
        plan.limits.max_batch_size,
        *engine,
    )
