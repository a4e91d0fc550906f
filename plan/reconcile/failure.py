"""What a start died of: what was needed, what there was, which term was too large, what to do."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf

from headcount.model.errors import HeadcountError
from headcount.model.units import format_bytes

from ..devices import Device, all_devices
from ..engines.start_log import Failure, Log, start_logs
from ..plan import Plan, plan_model
from ..stored import is_weighed
from .figures import HALF_STEP, reader_of, with_logged_terms
from .remedies import (
    Ground,
    Remedy,
    for_the_cache,
    for_the_device,
    for_the_step,
    for_the_weights,
)
from .start import Start

_GIB = 2**30
# What is told first where a log has several: the nearest to the cause.
_ORDER = (
    *("request", "tokens", "occupied", "unbalanced", "changed", "host", "sampler", "weights"),
    *("cache", "compute", "cells", "buffer", "memory", "runtime"),
)
_LIKELY = 1.0  # GiB that figures may be off a device's budget
_NO_TOLL = 1.0  # GiB that a device's own services may hold


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """A term of the rank's memory; `source` is `logged` or `estimate`."""

    term: str
    bytes: int
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """`cause` is the whole in a sentence. `too_large` names the term; bytes are those of a rank,
    `reckoned_bytes` what is needed by our rules where the log says it too.
    `largest_context` is ours, `logged_context` the engine's own estimate. Any is None where nothing
    tells it."""

    kind: str
    cause: str
    needed_bytes: int | None = None
    reckoned_bytes: int | None = None
    available_bytes: int | None = None
    too_large: str | None = None
    largest_context: int | None = None
    logged_context: int | None = None
    shares: tuple[Share, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    advice: tuple[str, ...] = ()

    def document(self) -> dict[str, object]:
        return {
            "failure": self.kind,
            "cause": self.cause,
            "needed_bytes": self.needed_bytes,
            "reckoned_bytes": self.reckoned_bytes,
            "available_bytes": self.available_bytes,
            "too_large": self.too_large,
            "largest_context": self.largest_context,
            "logged_context": self.logged_context,
            "shares": [{"term": n.term, "bytes": n.bytes, "source": n.source} for n in self.shares],
            "changes": [remedy.document() for remedy in self.remedies],
            "advice": list(self.advice),
        }

    @property
    def needed_agrees(self) -> bool | None:
        """Whether our figure rounds to the log's; None without both."""
        if self.needed_bytes is None or self.reckoned_bytes is None:
            return None
        return abs(self.needed_bytes - self.reckoned_bytes) <= round(HALF_STEP * _GIB)

    def rows(self, start: Start | None) -> Iterator[dict[str, object]]:
        """The same as figures: of a change, `logged` is what the start had and `predicted` what
        would do."""
        request = start.request if start else None
        advice = "; ".join(self.advice)
        yield _row("failure", None, None, False, self.cause + (f"; {advice}" if advice else ""))
        if self.needed_bytes is not None:
            agrees = self.needed_agrees
            why = self.too_large or ""
            yield _row("needed_bytes", self.needed_bytes, self.reckoned_bytes, agrees, why)
        if self.available_bytes is not None:
            yield _row("left_bytes", self.available_bytes, None, None, "what there was of it")
        if self.largest_context or self.logged_context:
            both = self.logged_context is not None and self.largest_context is not None
            agrees = self.logged_context == self.largest_context if both else None
            why = "the longest request that fits"
            yield _row("largest_context", self.logged_context, self.largest_context, agrees, why)
        for remedy in self.remedies:
            had = getattr(request, remedy.change, None)
            why = f"{remedy.text}: {remedy.command}" if remedy.command else remedy.text
            yield _row(f"change_{remedy.change.replace(' ', '_')}", had, remedy.value, None, why)


def _row(
    figure: str, logged: object, predicted: object, agrees: bool | None, why: str
) -> dict[str, object]:
    """An object of JSON with the keys of `Figure.document`."""
    values = {"figure": figure, "logged": logged, "predicted": predicted}
    return {**values, "low": None, "high": None, "agrees": agrees, "why": why}


def first_failure(log: Log) -> Failure | None:
    """The one that explains the others; None of a start that did not fail."""
    return next((log.failures[kind] for kind in _ORDER if kind in log.failures), None)


def likely_device(start: Start) -> Device | None:
    """The known device that the figures of the log fit best, where it names none: of those whose
    budget would leave what is logged, or that have the memory that was free."""
    figures = start.log.figures
    if {"left", "weights_gib"} <= figures.keys():
        seen = (figures["left"] + figures["weights_gib"]) * _GIB
        near = [n for n in all_devices() if 0.995 <= n.usable_memory / seen <= 1.04]
        return min(near, key=lambda device: device.usable_memory, default=None)
    if "available_gib" not in figures or not is_weighed(start.model):
        return None
    found = [(_off(start, device), device) for device in all_devices()]
    off, device = min(found, key=lambda pair: pair[0])
    return device if off <= _LIKELY else None


def _off(start: Start, device: Device) -> float:
    """GiB that the budget of the device and the log are apart."""
    request = replace(start.request, device=device, kv_memory=None)
    try:
        plan = plan_model(start.model, request)
    except HeadcountError:
        return inf
    left, _, _ = with_logged_terms(start, plan)
    return abs(left / _GIB - start.log.figures["available_gib"])


def explain(log: Log, start: Start | None) -> Explanation | None:
    """Of a log that says what its start died of; None of one that does not. Without a `start`,
    since the model is not known, only what the log says itself."""
    failure = first_failure(log)
    if failure is None:
        return None
    guessed = None
    if start is not None and start.request.device is None:
        guessed = likely_device(start)
        start = replace(start, request=replace(start.request, device=guessed))
    found = _EXPLAIN[failure.kind](log, start, failure.values)
    note = (
        f"the log names no device: {guessed.name} is taken, which its figures fit"
        if guessed
        else ""
    )
    advice = (*found.advice, note) if note else found.advice
    return replace(found, shares=tuple(_shares(log, start)), advice=advice)


def _bytes(gib: float | None) -> int | None:
    return None if gib is None else round(gib * _GIB)


def _ground(log: Log, start: Start, have: int | None) -> Ground:
    failure = log.failures.get("memory")
    capacity = failure.values.get("capacity") if failure else None
    total = log.figures.get("total", capacity)
    device = start.request.device
    return Ground(
        start=start,
        have=have,
        free=_bytes(log.figures.get("free")) if "total" in log.figures else None,
        total=_bytes(total) if total else (device.usable_memory if device else None),
    )


def _left(log: Log, start: Start | None) -> int | None:
    """Bytes for the cache: what the log says, or what its terms and our estimates leave."""
    gib = log.figures.get("available_gib")
    if gib is not None:
        return _bytes(gib)
    if start is None:
        return None
    own = reader_of(start).own_account(log, start.request)
    if own is not None:
        return _bytes(own.gib)
    plan = _budgeted(start)
    return with_logged_terms(start, plan)[0] if plan else None


def _budgeted(start: Start) -> Plan | None:
    if start.request.device is None or not is_weighed(start.model):
        return None
    try:
        return plan_model(start.model, replace(start.request, kv_memory=None))
    except HeadcountError:
        return None


def _need(start: Start) -> int | None:
    """Bytes of the cache of one request of the start's longest context."""
    try:
        plan = plan_model(start.model, replace(start.request, kv_memory=1))
    except HeadcountError:
        return None
    return plan.kv_cache_bytes


def _request(log: Log, start: Start | None, said: Mapping[str, float]) -> Explanation:
    needed, available = said.get("needed"), said.get("available")
    context = int(said.get("context", log.settings.get("context", 0)))
    estimate = said.get("estimate")
    if needed is None or available is None or not context:
        return replace(_cache(log, start, {}), kind="request")
    if start is not None and start.request.context != context:
        start = replace(start, request=replace(start.request, context=context))
    cause = (
        f"the cache of one request of {context:,} tokens needs {needed:.2f} GiB,"
        f" {available:.2f} GiB are left"
    )
    ground = _ground(log, start, _bytes(available)) if start else None
    found = Explanation(
        kind="request",
        cause=cause,
        needed_bytes=_bytes(needed),
        available_bytes=_bytes(available),
        too_large="the cache of one request",
        largest_context=_largest(ground, estimate) if ground else None,
        logged_context=int(estimate) if estimate else None,
        remedies=for_the_cache(ground) if ground else (),
    )
    if start is None:
        return replace(found, advice=tuple(_untried(log, found, context)))
    own = _need(start)
    found = replace(found, reckoned_bytes=own)
    if own is not None and not found.needed_agrees:
        note = f"by our rules one such request needs {own / _GIB:.2f} GiB, not {needed:.2f}"
        return replace(found, advice=(note,))
    return found


def _largest(ground: Ground, said: float | None) -> int | None:
    """By our rules; the engine's own estimate where that is what the rounded memory may hold."""
    step = round(HALF_STEP * _GIB)
    low, high = ground.largest_context(-step), ground.largest_context(step)
    if said and low and high and low <= said <= high:
        return int(said)
    return ground.largest_context()


def _tokens(log: Log, start: Start | None, said: Mapping[str, float]) -> Explanation:
    context, tokens = int(said["context"]), int(said["tokens"])
    if start is not None and start.request.context != context:
        start = replace(start, request=replace(start.request, context=context))
    each = _bytes_per_token(start) if start else None
    ground = _ground(log, start, tokens * each) if start and each else None
    found = Explanation(
        kind="tokens",
        cause=f"one request of {context:,} tokens is longer than the cache of {tokens:,} tokens",
        needed_bytes=context * each if each else None,
        available_bytes=tokens * each if each else None,
        too_large="the cache of one request",
        largest_context=(ground.largest_context() if ground else None) or tokens,
        logged_context=tokens,
        remedies=for_the_cache(ground) if ground else (),
    )
    return found if start else replace(found, advice=tuple(_untried(log, found, context)))


def _bytes_per_token(start: Start) -> int | None:
    """Of a long request, on a rank."""
    context = start.request.context or 4096
    need = _need(start)
    return None if need is None else -(-need // context)


def _cache(log: Log, start: Start | None, said: Mapping[str, float]) -> Explanation:
    left = _left(log, start)
    tokens = said.get("tokens")
    if tokens is not None and start is not None and (each := _bytes_per_token(start)):
        left = int(tokens * each)
    needed = _need(start) if start else None
    ground = _ground(log, start, left) if start else None
    remedies = for_the_cache(ground) if ground else ()
    words = f"{format_bytes(left)} are left" if left is not None else "nothing is left"
    if tokens is not None:
        words = f"there would be {int(tokens):,} tokens"
    return Explanation(
        kind="cache",
        cause=f"no memory is left for the cache: {words} when weights and a step have theirs",
        needed_bytes=needed,
        available_bytes=left,
        too_large=_largest_term(log, start),
        largest_context=ground.largest_context() if ground else None,
        remedies=remedies,
        advice=() if remedies else (_FOR_THE_CACHE,),
    )


_FOR_THE_CACHE = (
    "a larger share of the memory, fewer sequences a step, more devices, or weights of fewer bits;"
    " with --device NAME or SIZE, and --model, what fits is worked out"
)


def _largest_term(log: Log, start: Start | None) -> str | None:
    shares = [share for share in _shares(log, start) if share.term not in ("Requested", "KV cache")]
    return max(shares, key=lambda share: share.bytes).term.lower() if shares else None


def _occupied(log: Log, start: Start | None, said: Mapping[str, float]) -> Explanation:
    free, total, requested = said["free"], said["total"], said["requested"]
    share = int(free / total * 100) / 100 if total else 0.0
    ground = _ground(log, start, None) if start else None
    remedies = for_the_device(ground) if ground else ()
    holders = f"others hold {total - free:.2f} GiB of it: end them (nvidia-smi lists them), or"
    advice = f"{holders} start with a utilisation of at most {share:.2f}"
    if ground is not None and not remedies and _budgeted(ground.start) is not None:
        advice = f"{holders} nothing: with {share:.2f} of the device this model does not fit"
    return Explanation(
        kind="occupied",
        cause=f"{requested:.2f} GiB are to be taken of the device and {free:.2f} of {total:.2f} GiB"
        " are free: other processes hold the rest",
        needed_bytes=_bytes(requested),
        available_bytes=_bytes(free),
        too_large="memory that other processes hold",
        largest_context=None,
        remedies=remedies,
        advice=(advice,),
    )


def _unbalanced(log: Log, start: Start | None, said: Mapping[str, float]) -> Explanation:
    least, own = said.get("least"), said.get("own")
    words = f" ({least:.2f} GiB on one, {own:.2f} on another)" if least and own else ""
    return Explanation(
        kind="unbalanced",
        cause=f"the devices have different memory free{words}: other processes hold some",
        needed_bytes=_bytes(own),
        available_bytes=_bytes(least),
        too_large="memory that other processes hold",
        advice=("end what else runs on the devices (nvidia-smi lists it), and start again",),
    )


def _changed(log: Log, start: Start | None, said: Mapping[str, float]) -> Explanation:
    return Explanation(
        kind="changed",
        cause=f"{said['before']:.2f} GiB were free before the profiled step and"
        f" {said['after']:.2f} after it: another process gave memory back meanwhile",
        needed_bytes=_bytes(said["after"]),
        available_bytes=_bytes(said["before"]),
        too_large="memory that other processes held",
        advice=("start again once the other process has ended, or one after the other",),
    )


def _host(log: Log, start: Start | None, said: Mapping[str, float]) -> Explanation:
    needed, available = said["needed"], said["available"]
    return Explanation(
        kind="host",
        cause=f"{needed:.2f} GiB of the host's memory are needed, {available:.2f} GiB are free",
        needed_bytes=_bytes(needed),
        available_bytes=_bytes(available),
        too_large="what does not fit on the devices",
        advice=(
            "a smaller context or fewer parallel requests, a narrower cache, or weights of fewer"
            f" bits: {needed - available:.2f} GiB less are needed",
        ),
    )


def _sampler(log: Log, start: Start | None, said: Mapping[str, float]) -> Explanation:
    count = int(said["sequences"])
    failure = log.failures.get("memory")
    tried, free = _tried(failure)
    short = max(0.0, (tried or 0.0) - (free or 0.0))
    if start is not None and start.request.max_num_seqs is None:
        start = replace(start, request=replace(start.request, max_num_seqs=count))
    ground = _ground(log, start, _left(log, start)) if start else None
    detail = (
        f": {tried:.2f} GiB more were asked for, {free:.2f} were free" if tried and free else ""
    )
    return Explanation(
        kind="sampler",
        cause=f"the sampler's warm-up for {count:,} sequences found no room beside the"
        f" cache{detail}",
        needed_bytes=_bytes(tried),
        available_bytes=_bytes(free),
        too_large=f"the sampler of {count:,} sequences",
        remedies=for_the_step(ground, int(short * _GIB)) if ground else (),
        advice=() if start else ("fewer sequences (--max-num-seqs), or a smaller utilisation",),
    )


def _tried(failure: Failure | None) -> tuple[float | None, float | None]:
    if failure is None:
        return None, None
    return failure.values.get("tried"), failure.values.get("free")


def _weights(log: Log, start: Start | None, said: Mapping[str, float]) -> Explanation:
    failure = log.failures.get("memory")
    return _while_loading(log, start, failure.values if failure else {})


def _memory(log: Log, start: Start | None, said: Mapping[str, float]) -> Explanation:
    reached = log.failures["memory"].reached
    phase = log.settings.get("phase")
    if phase is not None and phase != "weights":
        cached = frozenset({"available_gib"}) if phase == "step" else frozenset[str]()
        return _in_a_step(log, start, said, reached | cached)
    if _others_hold(said) is not None and not reached & {"available_gib", "kv_tokens"}:
        return _held_by_others(log, start, said)
    if not reached & {"weights_gib", "available_gib", "kv_tokens", "num_blocks"}:
        if phase is None and start is None and "model" not in log.settings:
            return _at_some_time(log, said)
        return _while_loading(log, start, said)
    return _in_a_step(log, start, said, reached)


def _at_some_time(log: Log, said: Mapping[str, float]) -> Explanation:
    """Of a piece of a log that does not show how far the start had come."""
    return Explanation(
        kind="memory",
        cause=f"the device was full{_capacity_words(said)}",
        needed_bytes=_bytes(said.get("tried")),
        available_bytes=_bytes(said.get("free")),
        advice=(
            "what was under way does not show: if the weights were loaded, more devices or weights"
            " of fewer bits; after that, a smaller utilisation or fewer sequences a step; the lines"
            " before, or --model, tell more",
        ),
    )


def _others_hold(said: Mapping[str, float]) -> float | None:
    """GiB of the device that neither this process has nor anybody: None where that is little."""
    names = ("capacity", "free", "used")
    if any(name not in said for name in names):
        return None
    others = said["capacity"] - said["free"] - said["used"]
    return others if others > _NO_TOLL else None


def _held_by_others(log: Log, start: Start | None, said: Mapping[str, float]) -> Explanation:
    others = _others_hold(said)
    found = _while_loading(log, start, said)
    note = f"other processes hold {others:.2f} GiB of the device (nvidia-smi lists them): end them"
    return replace(found, advice=(note, *found.advice))


def _capacity_words(said: Mapping[str, float]) -> str:
    if "tried" not in said:
        return ""
    tried = f"{said['tried']:.2f} GiB more were asked for"
    if "capacity" not in said:
        return f": {tried}"
    return f": {tried}, {said['free']:.2f} of {said['capacity']:.2f} GiB were free"


def _while_loading(log: Log, start: Start | None, said: Mapping[str, float]) -> Explanation:
    plan = _budgeted(start) if start else None
    needed = plan.taken[0].bytes if plan else None
    capacity = said.get("capacity", log.figures.get("total"))
    fits = plan is not None and plan.fits
    words = f", of which a rank has {needed / _GIB:.2f} GiB" if needed else ""
    ground = _ground(log, start, None) if start else None
    advice = []
    if plan is None:
        advice.append(
            "more devices (tensor parallel), or weights of fewer bits; with --device NAME or SIZE"
            " what fits is worked out"
        )
    elif fits:
        advice.append(
            "by our reckoning this fits an empty device: look what else holds memory of it"
        )
    return Explanation(
        kind="weights",
        cause=f"the device was full while the weights were loaded{words}{_capacity_words(said)}",
        needed_bytes=needed,
        available_bytes=_bytes(capacity),
        too_large="weights",
        largest_context=None,
        remedies=for_the_weights(ground) if ground and not fits else (),
        advice=tuple(advice),
    )


def _in_a_step(
    log: Log, start: Start | None, said: Mapping[str, float], reached: frozenset[str]
) -> Explanation:
    """After the weights: in the profiled step, or beside the cache."""
    has_cache = bool(reached & {"available_gib", "kv_tokens", "num_blocks"})
    when = "beside the cache" if has_cache else "in the profiled step"
    short = max(0.0, said.get("tried", 0.0) - said.get("free", 0.0))
    ground = _ground(log, start, _left(log, start)) if start else None
    return Explanation(
        kind="step",
        cause=f"a step, or the capture of CUDA graphs, found no room {when}{_capacity_words(said)}",
        needed_bytes=_bytes(said.get("tried")),
        available_bytes=_bytes(said.get("free")),
        too_large="activations and CUDA graphs" if has_cache else "activations",
        remedies=for_the_step(ground, int(short * _GIB)) if ground else (),
        advice=() if start else ("a smaller utilisation, or fewer sequences and tokens a step",),
    )


def _left_of_device(log: Log, what: str) -> float | None:
    """GiB that were free before `what`, by what had been placed on the device until then."""
    free = log.figures.get("free")
    if free is None:
        return None
    placed = log.figures.get("on_device_gib", 0.0)
    return free - placed - (log.figures.get("kv_gib", 0.0) if "compute" in what else 0.0)


def _buffer(log: Log, start: Start | None, said: Mapping[str, float]) -> Explanation:
    buffer = log.failures.get("buffer")
    tried = buffer.values.get("tried") if buffer else None
    reached = buffer.reached if buffer else frozenset[str]()
    what = "the cache"
    if "compute" in log.failures or ("kv_gib" in reached and "cells" not in log.failures):
        what = "a step's compute buffer"
    elif "weights_gib" not in reached and "cells" not in log.failures:
        what = "the weights"
    size = f" of {tried:.2f} GiB" if tried else ""
    ground = _ground(log, start, None) if start and start.request.device else None
    return Explanation(
        kind="buffer",
        cause=f"{what}{size} found no room on the device",
        needed_bytes=_bytes(tried),
        available_bytes=_bytes(_left_of_device(log, what)),
        too_large=what,
        largest_context=ground.largest_context() if ground else None,
        remedies=for_the_cache(ground) if ground else (),
        advice=(
            "fewer layers on the device (-ngl), a smaller context (-c), a cache of q8_0"
            " (--cache-type-k, --cache-type-v) or a smaller micro-batch (-ub)",
        ),
    )


def _runtime(log: Log, start: Start | None, said: Mapping[str, float]) -> Explanation:
    left = log.figures.get("free")
    words = f" {left:.2f} GiB were free for the cache" if left is not None else ""
    ground = _ground(log, start, _bytes(left)) if start else None
    return Explanation(
        kind="runtime",
        cause=f"the device was full.{words}",
        available_bytes=_bytes(left),
        too_large=_largest_term(log, start),
        remedies=for_the_cache(ground) if ground else (),
        advice=("a smaller share of what is free for the cache, or more devices",),
    )


def _untried(log: Log, found: Explanation, context: int) -> Iterator[str]:
    """What follows from the log alone."""
    known = start_logs().get(log.engine)
    flag = known.context_option if known else ""
    most = found.logged_context
    if most is None and found.needed_bytes and found.available_bytes:
        most = int(context * found.available_bytes / found.needed_bytes)
        yield (
            f"about {most:,} tokens would fit ({flag} {most}), if the cache grows evenly with the"
            " length"
        )
    elif most:
        yield (
            f"{most:,} tokens fit, says the engine ({flag} {most}; not tried here, since the model"
            " is not known)"
        )
    yield from _more_memory(log, found)


def _more_memory(log: Log, found: Explanation | None = None) -> Iterator[str]:
    total, share = log.figures.get("total"), log.settings.get("utilisation")
    if found is None or not total or share is None:
        return
    if found.needed_bytes is None or found.available_bytes is None:
        return
    wanted = float(share) + (found.needed_bytes - found.available_bytes) / _GIB / total
    if wanted <= 0.95:
        yield f"or a utilisation of {wanted + 0.005:.2f}"


def _shares(log: Log, start: Start | None) -> Iterator[Share]:
    """Where a rank's memory went."""
    plan = _budgeted(start) if start else None
    logged_as = dict(reader_of(start).terms) if start else {}
    titles = {"weights_gib": "Weights", "activations": "Activations", "non_torch": "Outside torch"}
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


_EXPLAIN: dict[str, Callable[[Log, Start | None, Mapping[str, float]], Explanation]] = {
    "request": _request,
    "tokens": _tokens,
    "cache": _cache,
    "occupied": _occupied,
    "unbalanced": _unbalanced,
    "changed": _changed,
    "host": _host,
    "sampler": _sampler,
    "weights": _weights,
    "memory": _memory,
    "buffer": _buffer,
    "cells": _buffer,
    "compute": _buffer,
    "runtime": _runtime,
}
