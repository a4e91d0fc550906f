"""A plan for an engine as JSON: what `engine` of a plan's document holds."""

from collections.abc import Sequence

from .changes import Change
from .conversion import Bought
from .curves import Point, batch_curve
from .gate import Held
from .launch import launch_command
from .planning import ServingPlan
from .search import Option


def engine_document(
    plan: ServingPlan,
    *,
    changes: Sequence[Change],
    curve: Sequence[Point],
    conversion: Sequence[Bought],
    held: Sequence[Held],
    notes: Sequence[str],
) -> dict[str, object]:
    """Bytes are integers and of one device; `concurrency` is as in the engine's log, unrounded."""
    available = plan.available_bytes
    error = plan.budget.error_bytes if plan.budget else 0
    return {
        **_asked(plan),
        "available_kv_bytes": available,
        "available_kv_low": available - error,
        "available_kv_high": available + error,
        "budget": _budget(plan),
        "block_size": plan.pool.block_size,
        "num_blocks": plan.num_blocks,
        "kv_tokens": plan.kv_tokens,
        "bytes_per_token": plan.pool.bytes_per_token,
        "concurrency": plan.concurrency,
        "max_concurrency": int(plan.concurrency),
        "max_context": plan.max_context,
        "fits": plan.fits,
        "limiting_term": plan.limiting_term,
        "smallest_change": changes[0].document() if changes else None,
        "changes": [change.document() for change in changes],
        "launch_command": launch_command(plan),
        "curve": [point.document() for point in curve],
        "batch_curve": [point.document() for point in batch_curve(plan)],
        "conversion": [row.document() for row in conversion],
        "requirements": [item.document() for item in held],
        "notes": list(notes),
    }


def _asked(plan: ServingPlan) -> dict[str, object]:
    request = plan.request
    return {
        "name": request.engine,
        "version": request.version.text or None,
        "device": request.device.key if request.device else None,
        "kv_memory": request.kv_memory,
        "context": plan.workload.context,
        "batch_size": plan.workload.batch_size,
        "kv_dtype": request.kv_dtype or plan.workload.kv_dtype,
        "tp": request.tp,
        "pp": request.pp,
        "context_ranks": request.context_ranks,
        "utilisation": plan.share,
    }


def _budget(plan: ServingPlan) -> list[dict[str, object]]:
    """The tightest stage's terms: what is allowed first, then what is taken off."""
    budget = plan.budget
    return [] if budget is None else [t.document() for t in (budget.allowed, *budget.taken)]


def search_document(
    request_name: str, version: str, found: Sequence[Option], best: Sequence[Option]
) -> dict[str, object]:
    """`options` of every device and tp, and the smallest of each device that serve the batch."""
    return {
        "name": request_name,
        "version": version or None,
        "options": [option.document() for option in found],
        "smallest": [option.document() for option in best],
    }
