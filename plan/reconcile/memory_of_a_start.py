"""What a failed start had for its cache, what a request needed, and where the rest went."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from headcount.model.errors import HeadcountError

from ..engines.start_log import Log
from ..plan import Plan, plan_model
from ..stored import is_weighed
from .explanation import Share
from .figures import HALF_STEP, reader_of, with_logged_terms
from .ground import Ground
from .start import Start

_GIB = 2**30


def in_bytes(gib: float | None) -> int | None:
    """Of GiB; None stays None."""
    return None if gib is None else round(gib * _GIB)


class Left(NamedTuple):
    """Bytes for the cache, and how far off they may be: by the log's rounding, or an estimate's
    bar."""

    bytes: int
    error: int


def rounded(gib: float | None, addends: int = 1) -> Left | None:
    """Of a size that is logged with two digits, or a sum of so many; None stays None."""
    return None if gib is None else Left(round(gib * _GIB), round(HALF_STEP * addends * _GIB))


def ground_of(log: Log, start: Start, have: Left | None, estimate: int | None = None) -> Ground:
    """What changes of the start begin from, with `have` for the cache, or what it was told to take,
    which no log rounds."""
    if start.told_kv_memory is not None:
        have = Left(start.told_kv_memory, 0)
    failure = log.failures.get("memory")
    capacity = failure.values.get("capacity") if failure else None
    total = log.figures.get("total", capacity)
    device = start.request.device
    return Ground(
        start=start,
        have=have.bytes if have else None,
        rounding=have.error if have else 0,
        estimate=estimate,
        free=in_bytes(log.figures.get("free")) if "total" in log.figures else None,
        total=in_bytes(total) if total else (device.usable_memory if device else None),
        node_total=in_bytes(log.figures.get("node_total")),
    )


def left_for_the_cache(log: Log, start: Start | None) -> Left | None:
    """What the log says, or what its terms and our estimates leave."""
    gib = log.figures.get("available_gib")
    if gib is not None or start is None:
        return rounded(gib)
    own = reader_of(start).own_account(log, start.request)
    if own is not None:
        return rounded(own.gib, own.addends)
    plan = budgeted(start)
    return Left(*with_logged_terms(start, plan)[:2]) if plan else None


def budgeted(start: Start) -> Plan | None:
    """The plan by our own budget; None where neither device nor weights are known."""
    if start.request.device is None or not is_weighed(start.model):
        return None
    try:
        return plan_model(start.model, replace(start.request, kv_memory=None))
    except HeadcountError:
        return None


def needed_bytes_of(start: Start) -> int | None:
    """Bytes of the cache of one request of the start's longest context."""
    try:
        plan = plan_model(start.model, replace(start.request, kv_memory=1))
    except HeadcountError:
        return None
    return plan.needed(plan.workload.context, plan.workload.batch_size)


def bytes_per_token(start: Start) -> int | None:
    """Of a long request, on a rank."""
    context = start.request.context or 4096
    need = needed_bytes_of(replace(start, request=replace(start.request, context=context)))
    return None if need is None else -(-need // context)


def largest_term(log: Log, start: Start | None) -> str | None:
    """The name of what takes most beside the cache, in words."""
    shares = [
        share for share in shares_of(log, start) if share.term not in ("Requested", "KV cache")
    ]
    return max(shares, key=lambda share: share.bytes).term.lower() if shares else None


def shares_of(log: Log, start: Start | None) -> Iterator[Share]:
    """Where a rank's memory went."""
    plan = budgeted(start) if start else None
    logged_as = dict(reader_of(start).terms) if start else {}
    titles = {
        "weights_gib": "Weights",
        "model_gib": "Model",
        "activations": "Activations",
        "non_torch": "Outside torch",
    }
    titles |= {"graphs_ahead": "CUDA graphs", "consumed": "Weights and outside torch"}
    if "requested" in log.figures:
        yield _share("Requested", log.figures["requested"])
    elif plan is not None and plan.budget is not None and plan.budget.allowed is not None:
        yield Share(term="Requested", bytes=plan.budget.allowed.bytes, source="estimate")
    for name, title in titles.items():
        if name in log.figures:
            yield _share(title, log.figures[name])
    said = {logged_as[name] for name in titles if name in log.figures and name in logged_as}
    for term in plan.taken if plan and "consumed" not in log.figures else ():
        if term.key not in said:
            yield Share(term=term.title, bytes=term.bytes, source="estimate")
    if "available_gib" in log.figures:
        yield _share("KV cache", log.figures["available_gib"])


def _share(title: str, gib: float) -> Share:
    return Share(term=title, bytes=round(gib * _GIB), source="logged")
