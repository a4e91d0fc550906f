"""The head of a plan's report: the verdict first, then what was planned, then the limits."""

from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING

from headcount.model.units import format_bytes
from headcount.report.cells import cell
from headcount.report.report import Fact, Tone

from ..decode import decode_rate
from ..hardware.candidates import Candidate, placements
from ..plan import Plan
from ..replication import replication
from ..result import PlanResult
from .hardware import hundredths, may_serve, tried

if TYPE_CHECKING:
    from ..gate import Held


def plan_facts(result: PlanResult) -> Iterator[Fact]:
    """The lines that a person pastes in a report."""
    plan = result.plan
    yield from _verdict(result)
    yield from _request(result)
    yield from _cache(plan)
    is_row = result.chosen is not None  # of a table that says it of each device
    yield from (fact._replace(detail=fact.detail or is_row) for fact in _results(plan))
    yield from (_held(item) for item in result.requirements)
    if plan.launch is not None and not _is_refused_for_memory(plan):
        if plan.launch.command:
            engines = result.chosen.replicas if result.chosen else 1
            title = f"Start each of {engines:,} with" if engines > 1 else "Start with"
            yield Fact("launch_command", title, plan.launch.command, "command")
        else:
            yield Fact("launch_command", "Start with", f"nothing: {plan.launch.notes[0]}")


def _is_refused_for_memory(plan: Plan) -> bool:
    """Whether its engine would not start as planned, for want of a cache of one request."""
    return plan.verdict == "does not fit" and plan.spec.is_cached and plan.concurrency < 1


def _results(plan: Plan) -> Iterator[Fact]:
    if plan.engine.starts:
        yield from _loading(plan)
        yield from _capacity(plan)
        yield from _host(plan)
    yield from _limits(plan)
    yield from _speed(plan)


def _verdict(result: PlanResult) -> Iterator[Fact]:
    plan, chosen = result.plan, result.chosen
    if not plan.engine.starts:
        yield _memory_verdict(result)
    elif chosen is None:
        yield _engine_verdict(plan)
    if chosen is None:  # a search has tried others
        texts = [change.text for change in result.changes]
        if texts:
            note = f"or {', '.join(texts[1:])}" if texts[1:] else ""
            title = "Would fit with" if result.changes[0].is_sure else "Borderline with"
            title = "Surely fits with" if plan.fits else title
            yield Fact("smallest_change", title, texts[0], "text", note)
    elif plan.engine.starts:
        yield _search_verdict(result, chosen)
        title = "Devices" if result.holds else "Nearest to it"
        what = f"{chosen.devices:,} x {chosen.device.name}"
        yield Fact("devices", title, what, "text", chosen.split, drop=2)
    yield from _cost(result)
    yield from _perhaps(result)


def _perhaps(result: PlanResult) -> Iterator[Fact]:
    option = result.perhaps
    if option is not None:
        what = f"{option.devices:,} x {option.device.key}"
        price = result.an_hour(option)
        cost = "" if price is None else f", {cell(price, 'price')} an hour"
        note = f"{option.split}: {may_serve(option, ' requests')}{cost}"
        yield Fact("perhaps", "Borderline", what, "text", note)


def _cost(result: PlanResult) -> Iterator[Fact]:
    """Of what the plan is of: without an engine, a search is of none."""
    shown = result.shown if result.plan.request.device else None
    price = result.an_hour(shown) if shown else None
    if shown and price is not None:
        month = cell(result.a_month(shown), "price")
        yield Fact("an_hour", "Cost an hour", price, "price", f"{month} a month")


def _memory_verdict(result: PlanResult) -> Fact:
    plan = result.plan
    device, tp, needed = plan.request.device, plan.request.tp, format_bytes(plan.total_bytes)
    each = f"on each of {tp} devices" if tp > 1 else "on one device"
    allowed, free = plan.budget_bytes, plan.free_bytes
    if allowed is None or free is None:
        fitting = [bool(placement.plan.fits) for placement in placements(result.candidates)]
        where = f"enough for {sum(fitting)} of {len(fitting)} devices{_of_what(result)}"
        return Fact("verdict", "Verdict", f"needs {needed} {each}", "text", where)
    left = f"{format_bytes(free)} free" if free >= 0 else f"{format_bytes(-free)} short"
    value = f"{plan.verdict}: {needed} of {format_bytes(allowed)}, {left}"
    where = "of the K/V memory given"
    if device is not None:
        usable = format_bytes(device.usable_memory)
        where = f"{device.name}: {plan.utilisation or 0:.2f} x {usable} usable"
    return Fact("verdict", "Verdict", value, "text", f"{each}, {where}", tone=_tone(plan.verdict))


def _engine_verdict(plan: Plan) -> Fact:
    request = plan.request
    where = "the K/V memory given"
    if request.device is not None and request.kv_memory is None:
        where = (f"{request.ranks} x " if request.ranks > 1 else "") + request.device.name
    value = f"{plan.verdict}: {_reason(plan)}"
    note = f"{engine_name(plan)} on {where}"
    return Fact("verdict", "Verdict", value, "text", note, tone=_tone(plan.verdict))


def engine_name(plan: Plan) -> str:
    return f"{plan.engine.name} {plan.workload.version.text}".strip()


def _reason(plan: Plan) -> str:
    wanted, available = plan.request.batch_size, plan.available_bytes
    if plan.refusals:
        return "; ".join(plan.refusals)
    if plan.loading is not None and not plan.loads:
        return f"{format_bytes(-plan.loading.free_bytes)} short while the weights load"
    if available <= 0:
        return f"{format_bytes(-available)} short before any cache"
    if not plan.spec.is_cached:
        return "the model keeps no cache"
    if plan.is_kept_by_host and plan.fits:
        return "the cache lies in the host's memory"
    if not plan.runs_at_once:
        return f"{plan.most_at_once:,} of {wanted:,} requests run at once"
    if plan.verdict == "borderline":
        low, high = (hundredths(end.at_once, wanted) for end in (plan.low, plan.high))
        return f"{wanted:,} of {plan.at_once:,.2f} possible requests, {low:,.2f} to {high:,.2f}"
    if not plan.fits:
        return f"{hundredths(plan.at_once, wanted):,.2f} of {wanted:,} requests"
    return f"{wanted:,} of {plan.at_once:,.2f} possible requests"


def _search_verdict(result: PlanResult, chosen: Candidate) -> Fact:
    users = result.users or chosen.plan.workload.batch_size
    what = "cost" if result.an_hour(chosen) is not None else "memory"
    devices = f"{chosen.devices:,} x {chosen.device.key}"
    value = f"fits on {devices}: least {what}"
    if chosen.verdict == "borderline":
        value = f"borderline: {devices}"
    elif not result.holds or chosen.verdict != "fits":
        value = f"no device{_of_what(result)} suffices"
    wanted = f"{users:,} requests at once" if users > 1 else "one request at once"
    note = f"{wanted}{tried(result)}, {engine_name(chosen.plan)}"
    tone = _tone(chosen.verdict if result.holds else "no device")
    return Fact("verdict", "Verdict", value, "text", note, tone=tone)


def _tone(verdict: str | None) -> Tone:
    return "good" if verdict == "fits" else "open" if verdict == "borderline" else "bad"


def _of_what(result: PlanResult) -> str:
    return " of those named" if result.named else " of the table"


def _request(result: PlanResult) -> Iterator[Fact]:
    plan, chosen = result.plan, result.chosen
    work, request, weights = plan.workload, plan.request, plan.weights
    share = _of_replica(plan) if chosen is not None and chosen.replicas > 1 else ""
    is_search = chosen is not None  # its table says for what it is
    source, drop = _context_source(plan), 1 if is_search else 0
    yield Fact("context", "Context", work.context, "tokens", source, drop=drop)
    if work.encoder_tokens:
        source = "the model's maximum" if request.encoder_tokens is None else ""
        yield Fact("encoder_tokens", "Encoder tokens", work.encoder_tokens, "tokens", source)
    drop = 3 if work.batch_size == 1 or is_search else 0
    yield Fact("batch_size", "Batch size", work.batch_size, "count", share, drop=drop)
    if weights is not None:
        total, formula = weights.total_bytes, weights.formula
        yield Fact("weights", "Weights", total, "bytes", formula, drop=1)  # the bar has them, too


def _of_replica(plan: Plan) -> str:
    """Which decides how many replicas there are: what surely fits, not what is estimated to."""
    if plan.budget is None or plan.at_once == inf:
        return "of each replica"
    sure = f"{plan.low.at_once:,.2f} surely fit, {plan.at_once:,.2f} as estimated"
    return f"of each replica: {sure}"


def _loading(plan: Plan) -> Iterator[Fact]:
    if (loading := plan.loading) is not None:
        note = f"of {format_bytes(loading.room)} on each device: {loading.peak.formula}"
        yield Fact("loading_bytes", "While loading", loading.peak.bytes, "bytes", note)


def _host(plan: Plan) -> Iterator[Fact]:
    """What the verdict does not count."""
    terms = plan.host_terms
    if terms:
        parts = ", ".join(f"{term.title} {format_bytes(term.bytes)}" for term in terms)
        total = sum(term.bytes for term in terms)
        yield Fact("host_bytes", "Beside it, in host memory", total, "bytes", parts, drop=4)


def _context_source(plan: Plan) -> str:
    if plan.request.context is not None:
        return ""
    return "assumed" if plan.spec.max_position_embeddings is None else "the model's maximum"


def _cache(plan: Plan) -> Iterator[Fact]:
    if not plan.spec.is_cached:
        return
    growth, first = plan.bytes_per_token, plan.bytes_of_first_token
    note = plan.workload.kv_dtype + (" on each device" if plan.request.tp > 1 else "")
    key = "rank_cache_bytes_of_first_token"
    yield Fact(key, "KV cache per token", first, "exact_bytes", note, drop=1)
    if first != growth:
        key, note = "rank_cache_bytes_per_token", "once every window is full"
        yield Fact(key, "and a further token", growth, "exact_bytes", note, drop=2)
    found = replication(plan)
    if found.copies > 1:
        note = f"{format_bytes(found.cache_bytes)} of the cache of all devices is copies"
        yield Fact("kv_copies", "K/V copies", found.copies, "count", note, drop=3)


def _limits(plan: Plan) -> Iterator[Fact]:
    limits, sure, work = plan.limits, plan.low.limits, plan.workload
    if plan.fits is None:
        return
    most, batch = limits.max_context, limits.max_batch_size
    note = f"at batch size {work.batch_size:,}{_cap(plan) if limits.context_is_capped else ''}"
    note += _surely(most, sure.max_context)
    value = "unbounded" if most is None else most
    yield Fact("max_context", "Largest context", value, "tokens", note, drop=2)
    value, note = "unbounded" if batch is None else batch, f"at {work.context:,} tokens each"
    note += _surely(batch, sure.max_batch_size)
    yield Fact("max_batch_size", "Largest batch size", value, "count", note, drop=2)


def _surely(estimated: int | None, sure: int | None) -> str:
    """What fits even if all estimates err, where that is another."""
    return "" if sure is None or sure == estimated else f"; {sure:,} surely"


def _cap(plan: Plan) -> str:
    longer = plan.workload.context > (plan.spec.max_position_embeddings or 0)
    return ", as asked for" if longer else ", the model's maximum"


def _speed(plan: Plan) -> Iterator[Fact]:
    rate = decode_rate(plan)
    if rate is not None:
        note = "tokens a sequence, by memory bandwidth"
        yield Fact("decode_tokens_per_second", "Decoding, at most", rate, "rate", note, drop=5)


def _held(item: "Held") -> Fact:
    value = "holds" if item.holds else "does not hold"
    title, note = f"Requires {item.requirement.text}", f"found {item.text}"
    return Fact("requirement", title, value, "text", note)


def _capacity(plan: Plan) -> Iterator[Fact]:
    """In the words of the engine's log."""
    pool, note = plan.pool, "given"
    if plan.budget is not None:
        note = f"of each device, within {format_bytes(plan.error_bytes)}"
    title = "Available for the cache"
    yield Fact("available_kv_bytes", title, plan.available_bytes, "bytes", note, drop=7)
    if not plan.spec.is_cached or plan.is_kept_by_host:
        return  # nothing is logged of a cache on the device, and it limits nothing
    if plan.num_blocks is not None and pool.block_size and pool.block_size > 1:
        note = f"of {pool.block_size:,} tokens"
        yield Fact("num_blocks", "Blocks", plan.num_blocks, "count", note, detail=True)
    # without blocks the start is told how many tokens to keep, and logs those
    whole = "tokens of all whole requests that would fit"
    note = "tokens, as the engine logs it" if pool.block_size else whole
    yield Fact("kv_tokens", "KV cache size", plan.kv_tokens, "tokens", note, drop=6)
    at_once, note = f"{plan.concurrency:,.2f}x", f"requests of {plan.workload.context:,} tokens"
    yield Fact("concurrency", "Concurrency", at_once, "text", note, drop=2)
    limit = plan.limiting_term.replace("_", " ")
    yield Fact("limiting_term", "Limited by", limit, detail=True)
