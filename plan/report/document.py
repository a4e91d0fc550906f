"""A plan as JSON: stable keys, raw integers of bytes, `schema_version` first."""

from collections.abc import Iterator, Mapping
from math import isfinite

from ..curves import batch_curve
from ..decode import decode_rate
from ..hardware.candidates import Candidate, Placement, by_memory, placements
from ..plan import Plan
from ..replication import replication
from ..result import PlanResult
from ..what_if.rows import VariantPlan, conversions
from .hardware import hundredths, price_cells
from .notes import assumptions, report_notes, warnings

SCHEMA_VERSION = 1


def plan_document(result: PlanResult) -> Mapping[str, object]:
    """Bytes are integers and those of one rank, that is, of one device. What an engine counts in
    words of its own is under `engine`; every other figure follows from its account, too."""
    plan = result.plan
    document: dict[str, object] = {
        "schema_version": SCHEMA_VERSION,
        "model": _model(plan),
        "request": _request(plan),
        "memory": _memory(plan),
        "fits": plan.fits,
        "verdict": plan.verdict,
        "refusals": list(plan.refusals),
        "limits": {**_limits(plan), "context_is_capped": plan.limits.context_is_capped},
        "per_rank": _per_rank(plan),
        "decode_tokens_per_second": decode_rate(plan),
        "devices": [_device(place, result) for place in _placements(result)],
        "hardware": [hardware_document(option, result) for option in result.of_each_device],
        "what_if": [_variant(row) for row in result.variants],
        "assumptions": list(assumptions(result)),
        "warnings": list(warnings(plan)),
    }
    if plan.engine.starts:
        document["engine"] = _engine(result)
    return document


def _model(plan: Plan) -> dict[str, object]:
    spec = plan.spec
    return {
        "id": plan.model.model_id,
        "model_type": spec.model_type,
        "parameters": spec.parameters,
        "parameters_source": spec.parameters_source,
        "dtype": spec.dtype,
        "max_position_embeddings": spec.max_position_embeddings,
    }


def _request(plan: Plan) -> dict[str, object]:
    """With every default filled in; of a search, that of the plan that is shown."""
    work, device = plan.workload, plan.request.device
    return {
        "context": work.context,
        "encoder_tokens": work.encoder_tokens,
        "batch_size": work.batch_size,
        "dtype": work.dtype,
        "kv_dtype": work.kv_dtype,
        "tp": plan.request.tp,
        "device": device.key if device else None,
        "utilisation": plan.utilisation,
    }


def _memory(plan: Plan) -> dict[str, object]:
    """Of given K/V memory only the cache is known to be in it."""
    device = None if plan.request.kv_memory is not None else plan.request.device
    return {
        "weights_bytes": plan.weights_bytes,
        "kv_cache_bytes": plan.kv_cache_bytes,
        "overhead_bytes": {term.key: term.bytes for term in plan.taken[1:]},
        "total_bytes": plan.total_bytes,
        "usable_bytes": device.usable_memory if device else None,
        "budget_bytes": plan.budget_bytes,
        "free_bytes": plan.free_bytes,
        "loading_bytes": plan.loading.peak.bytes if plan.loading else None,
        "formulas": {term.key: term.formula for term in plan.terms},
    }


def _limits(plan: Plan) -> dict[str, object]:
    limits = plan.limits
    return {"max_context": limits.max_context, "max_batch_size": limits.max_batch_size}


def _per_rank(plan: Plan) -> dict[str, object]:
    found = replication(plan)
    return {
        "ranks": found.ranks,
        "num_attention_heads": found.num_attention_heads,
        "num_key_value_heads": found.num_key_value_heads,
        "kv_copies": found.copies,
        "rank_cache_bytes_per_token": plan.bytes_per_token,
        "replicated_cache_bytes": found.cache_bytes,
        "replicated_weights_bytes": found.weights_bytes,
    }


def _placements(result: PlanResult) -> Iterator[Placement]:
    """Of an engine, how each device serves best, as in `hardware`: the plan that is shown is one of
    them. Without one, with the tp that was asked for, as is that plan."""
    best = {option.device.key: option for option in reversed(result.of_each_device)}
    for placement in placements(result.candidates):
        if result.plan.engine.starts:
            option = best[placement.device.key]
            placement = Placement(asked=option, smallest=option if option.plan.fits else None)
        yield placement


def _device(placement: Placement, result: PlanResult) -> dict[str, object]:
    """Costs are those of as many as suffice."""
    plan, smallest = placement.plan, placement.smallest
    return {
        "device": placement.device.key,
        "usable_bytes": placement.device.usable_memory,
        "budget_bytes": plan.budget_bytes,
        "fits": plan.fits,
        "verdict": plan.verdict,
        "free_bytes": plan.free_bytes,
        **_limits(plan),
        "replicas": placement.asked.replicas,
        "smallest_tp": smallest.tp if smallest else None,
        "smallest_devices": smallest.devices if smallest else None,
        "decode_tokens_per_second": decode_rate(plan) if plan.fits else None,
        **_price(smallest, result),
    }


def _variant(row: VariantPlan) -> dict[str, object]:
    variant, plan = row.variant, row.plan
    return {
        "name": variant.name,
        "num_key_value_heads": variant.num_key_value_heads,
        "group_size": variant.group_size,
        **({"pruned_to": variant.query_heads} if variant.query_heads else {}),
        **({"converted_by": f"headcount convert {variant.latent}"} if variant.latent else {}),
        "current": variant.is_current,
        "weights_bytes": plan and plan.weights_bytes,
        "rank_cache_bytes_per_token": plan and plan.bytes_per_token,
        "kv_cache_bytes": plan and plan.kv_cache_bytes,
        "total_bytes": plan and plan.total_bytes,
        "mha_ratio": row.mha_ratio,
        "fits": plan and plan.fits,
        "max_context": plan and plan.limits.max_context,
        "max_batch_size": plan and plan.limits.max_batch_size,
    }


def _engine(result: PlanResult) -> dict[str, object]:
    """`concurrency` is as in the engine's log, unrounded."""
    plan, request, available = result.plan, result.plan.request, result.plan.available_bytes
    shown = result.shown
    changes = [change.document() for change in result.changes]
    return {
        "name": plan.engine.name,
        "version": plan.workload.version.text or None,
        "device": request.device.key if request.device else None,
        "kv_memory": request.kv_memory,
        "context": plan.workload.context,
        "batch_size": plan.workload.batch_size,
        "kv_dtype": plan.workload.kv_dtype,
        "tp": request.tp,
        "pp": request.pp,
        "replicas": shown.replicas if shown else 1,
        "devices": shown.devices if shown else request.ranks,
        "cards": shown.cards if shown else request.ranks,
        **_price(shown, result),
        "context_ranks": request.context_ranks,
        "utilisation": plan.utilisation,
        "available_kv_bytes": available,
        "available_kv_low": available - plan.error_bytes,
        "available_kv_high": available + plan.error_bytes,
        "budget": _budget(plan),
        "host": [term.document() for term in plan.host_terms],
        "block_size": plan.pool.block_size,
        "num_blocks": plan.num_blocks,
        "kv_tokens": plan.kv_tokens,
        "rank_cache_bytes_per_token": plan.bytes_per_token,
        "concurrency": None if plan.is_kept_by_host else plan.concurrency,
        "max_concurrency": None if plan.is_kept_by_host else int(plan.at_once),
        "max_context": plan.limits.max_context,
        "fits": plan.fits,
        "verdict": plan.verdict,
        "limiting_term": plan.limiting_term,
        "smallest_change": changes[0] if changes else None,
        "changes": changes,
        "launch_command": plan.launch_command,
        "launch_notes": list(plan.launch.notes) if plan.launch else [],
        "curve": [point.document() for point in result.curve],
        "batch_curve": [point.document() for point in batch_curve(plan)],
        "conversion": [_conversion(row) for row in conversions(result.variants)],
        "requirements": [item.document() for item in result.requirements],
        "holds": result.holds,
        "target_users": result.users,
        "perhaps": result.perhaps and perhaps_document(result.perhaps, result),
        "options": [candidate_document(option, result) for option in by_memory(result.candidates)],
        "smallest": [candidate_document(option, result) for option in result.offered],
        "notes": report_notes(result),
    }


def _budget(plan: Plan) -> list[dict[str, object]]:
    """What is allowed first, then what is taken off."""
    allowed = plan.budget.allowed if plan.budget else None
    return [term.document() for term in (allowed, *plan.taken) if term is not None]


def _conversion(row: VariantPlan) -> dict[str, object]:
    plan, heads = row.plan, row.variant.num_key_value_heads
    assert plan is not None
    return {
        "name": row.variant.name if heads is None else f"{heads} K/V heads",
        "num_key_value_heads": heads,
        "current": row.variant.is_current,
        "rank_cache_bytes_per_token": plan.bytes_per_token,
        "kv_tokens": plan.kv_tokens,
        "concurrency": round(plan.concurrency, 2),
        "max_context": plan.limits.max_context,
        "fits": plan.fits,
        "kv_copies": row.copies,
        "replicated_kv_bytes": row.waste_bytes,
    }


def candidate_document(option: Candidate, result: PlanResult) -> dict[str, object]:
    """`concurrency`, `kv_tokens` and the like are those of each of its replicas; a concurrency of
    None has no limit, which JSON has no number for."""
    plan = option.plan
    at_once = plan.concurrency
    return {
        "device": option.device.key,
        "tp": option.tp,
        "pp": option.pp,
        "replicas": option.replicas,
        "devices": option.devices,
        "cards": option.cards,
        "enable_expert_parallel": plan.request.enable_expert_parallel,
        "total_memory": option.total_memory,
        "fits": plan.fits,
        "verdict": option.verdict,
        "refusals": list(plan.refusals),
        "batch_size": plan.workload.batch_size,
        "available_kv_bytes": plan.available_bytes,
        "kv_tokens": plan.kv_tokens,
        "concurrency": round(at_once, 2) if isfinite(at_once) else None,
        "max_context": plan.limits.max_context,
        "launch_command": plan.launch_command,
        **_price(option, result),
    }


def hardware_document(option: Candidate, result: PlanResult) -> dict[str, object]:
    """A row of the hardware table."""
    fewer = result.perhaps_instead(option)
    perhaps = fewer and perhaps_document(fewer, result)
    return {**candidate_document(option, result), "perhaps": perhaps}


def perhaps_document(option: Candidate, result: PlanResult) -> dict[str, object]:
    """What is borderline, with the requests that each of its replicas serves at once if the
    estimates err against it, and in its favour."""
    wanted = option.plan.workload.batch_size
    ends = dict(zip(("concurrency_low", "concurrency_high"), option.may_serve, strict=True))
    found = {key: hundredths(end, wanted) if isfinite(end) else None for key, end in ends.items()}
    return {**candidate_document(option, result), **found}


def _price(option: Candidate | None, result: PlanResult) -> dict[str, object]:
    """Of all devices; nothing where no prices were given."""
    return dict(zip(("an_hour", "a_month"), price_cells(result, option), strict=False))
