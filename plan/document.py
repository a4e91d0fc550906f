"""A plan as JSON: stable keys, raw integers of bytes, `schema_version` first."""

from collections.abc import Mapping

from .notes import assumptions, warnings
from .placement import Placement
from .planning import ModelPlan, VariantPlan
from .replication import replication

SCHEMA_VERSION = 1


def plan_document(plan: ModelPlan) -> Mapping[str, object]:
    """`memory`, `fits`, `limits`, `devices` and `what_if` are of one rank, that is, one device."""
    limits = plan.memory.limits
    return {
        "schema_version": SCHEMA_VERSION,
        "model": _model(plan),
        "request": _request(plan),
        "memory": _memory(plan),
        "fits": plan.memory.fits,
        "limits": {
            "max_context": limits.max_context if limits else None,
            "max_batch_size": limits.max_batch_size if limits else None,
            "context_is_capped": limits.context_is_capped if limits else None,
        },
        "per_rank": _per_rank(plan),
        "decode_tokens_per_second": _decode_rate(plan),
        "devices": [_device(plan, placement) for placement in plan.placements],
        "what_if": [_variant(row) for row in plan.variants],
        "assumptions": list(assumptions(plan)),
        "warnings": list(warnings(plan)),
    }


def _model(plan: ModelPlan) -> dict[str, object]:
    spec = plan.spec
    return {
        "id": plan.model_id,
        "model_type": spec.model_type,
        "parameters": spec.parameters,
        "parameters_source": spec.parameters_source,
        "dtype": spec.dtype,
        "max_position_embeddings": spec.max_position_embeddings,
    }


def _request(plan: ModelPlan) -> dict[str, object]:
    workload, device = plan.workload, plan.request.device
    return {
        "context": workload.context,
        "encoder_tokens": workload.encoder_tokens,
        "batch_size": workload.batch_size,
        "dtype": workload.dtype,
        "kv_dtype": workload.kv_dtype,
        "tp": plan.request.tp,
        "device": device.key if device else None,
        "utilisation": plan.request.utilisation,
    }


def _memory(plan: ModelPlan) -> dict[str, object]:
    memory, device = plan.memory, plan.request.device
    weights, cache, *overhead = memory.terms
    return {
        "weights_bytes": weights.bytes,
        "kv_cache_bytes": cache.bytes,
        "overhead_bytes": {term.key: term.bytes for term in overhead},
        "total_bytes": memory.total_bytes,
        "usable_bytes": device.usable_memory if device else None,
        "budget_bytes": memory.budget_bytes,
        "free_bytes": memory.free_bytes,
        "formulas": {term.key: term.formula for term in memory.terms},
    }


def _per_rank(plan: ModelPlan) -> dict[str, object]:
    found = replication(plan)
    return {
        "ranks": found.ranks,
        "num_attention_heads": found.num_attention_heads,
        "num_key_value_heads": found.num_key_value_heads,
        "kv_copies": found.copies,
        "kv_cache_bytes_per_token": plan.memory.rank.cache.bytes_per_token(),
        "replicated_cache_bytes": found.cache_bytes,
        "replicated_weights_bytes": found.weights_bytes,
    }


def _decode_rate(plan: ModelPlan) -> float | None:
    device = plan.request.device
    return plan.decode_rate(device) if device else None


def _device(plan: ModelPlan, placement: Placement) -> dict[str, object]:
    memory, limits = placement.plan, placement.limits
    return {
        "device": placement.device.key,
        "usable_bytes": placement.device.usable_memory,
        "budget_bytes": memory.budget_bytes,
        "fits": memory.fits,
        "free_bytes": memory.free_bytes,
        "max_context": limits.max_context,
        "max_batch_size": limits.max_batch_size,
        "smallest_tp": placement.smallest_tp,
        "decode_tokens_per_second": plan.decode_rate(placement.device) if memory.fits else None,
    }


def _variant(row: VariantPlan) -> dict[str, object]:
    variant, memory = row.variant, row.memory
    limits = memory.limits if memory else None
    workload = memory.workload if memory else None
    return {
        "name": variant.name,
        "num_key_value_heads": variant.num_key_value_heads,
        "group_size": variant.group_size,
        "current": variant.is_current,
        "weights_bytes": memory.rank.weights_bytes if memory else None,
        "kv_cache_bytes_per_token": memory.rank.cache.bytes_per_token() if memory else None,
        "kv_cache_bytes": memory.rank.cache_bytes(workload.context, workload.batch_size)
        if memory and workload
        else None,
        "total_bytes": memory.total_bytes if memory else None,
        "mha_ratio": row.mha_ratio,
        "fits": memory.fits if memory else None,
        "max_context": limits.max_context if limits else None,
        "max_batch_size": limits.max_batch_size if limits else None,
    }
