"""Starts that had too little memory for the cache."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from headcount.model.units import format_bytes

from ..engines.start_log import Log, start_logs
from .explanation import Explanation
from .ground import Ground, Remedy
from .memory_of_a_start import (
    Left,
    budgeted,
    bytes_per_token,
    ground_of,
    in_bytes,
    largest_term,
    left_for_the_cache,
    needed_bytes_of,
    rounded,
)
from .remedies import for_any_cache, for_more_devices, for_the_cache
from .start import Start

_GIB = 2**30
_FOR_THE_CACHE = (
    "not tried here: a larger share of the memory, fewer sequences a step, more devices, or weights"
    " of fewer bits; with --device NAME or SIZE, and --model, what fits is worked out"
)
_NONE_DOES = (
    "none of the single changes does that were tried: a larger share of the memory, fewer sequences"
    " a step, more devices, weights of fewer bits"
)


def _without(remedies: tuple[Remedy, ...], ground: Ground | None) -> tuple[str, ...]:
    """What is said where nothing can be offered."""
    if remedies:
        return ()
    tried = ground is not None and ground.budgeted(ground.request) is not None
    return (_NONE_DOES if tried else _FOR_THE_CACHE,)


def request_too_long(log: Log, start: Start | None, said: Mapping[str, float]) -> Explanation:
    """One request of the longest context needs more than is left; both are in the log."""
    needed, available = said.get("needed"), said.get("available")
    context = int(said.get("context", log.settings.get("context", 0)))
    estimate = said.get("estimate")
    if needed is None or available is None or not context:
        return _request_of_no_size(log, start)
    if start is not None and start.request.context != context:
        start = replace(start, request=replace(start.request, context=context))
    cause = (
        f"the cache of one request of {context:,} tokens needs {needed:.2f} GiB,"
        f" {available:.2f} GiB are left"
    )
    said_most = int(estimate) if estimate else None
    ground = ground_of(log, start, rounded(available), said_most) if start else None
    found = Explanation(
        kind="request",
        cause=cause,
        needed_bytes=in_bytes(needed),
        available_bytes=in_bytes(available),
        too_large="the cache of one request",
        largest_context=ground.largest_context() if ground else None,
        logged_context=said_most,
        remedies=for_the_cache(ground) if ground else (),
    )
    if start is None:
        return replace(found, advice=tuple(_untried(log, found, context)))
    own = needed_bytes_of(start)
    found = replace(found, reckoned_bytes=own)
    if own is not None and not found.needed_agrees:
        note = (
            f"by our rules one such request needs {own / _GIB:.2f} GiB, not {needed:.2f}: what"
            " would do is not planned by them"
        )
        advice = (note, *_untried(log, found, context))
        return replace(found, largest_context=None, remedies=(), advice=advice)
    return found


def _request_of_no_size(log: Log, start: Start | None) -> Explanation:
    """Of a line that has lost its numbers."""
    left = left_for_the_cache(log, start)
    ground = ground_of(log, start, left) if start else None
    remedies = for_the_cache(ground) if ground else ()
    return Explanation(
        kind="request",
        cause="one request of the longest context needs more than is left for the cache",
        needed_bytes=needed_bytes_of(start) if start else None,
        available_bytes=left.bytes if left else None,
        too_large="the cache of one request",
        largest_context=ground.largest_context() if ground else None,
        remedies=remedies,
        advice=_without(remedies, ground),
    )


def tokens_too_many(log: Log, start: Start | None, said: Mapping[str, float]) -> Explanation:
    """The same, counted in tokens, as the older engine does."""
    context, tokens = int(said["context"]), int(said["tokens"])
    if start is not None and start.request.context != context:
        start = replace(start, request=replace(start.request, context=context))
    each = bytes_per_token(start) if start else None
    ground = ground_of(log, start, Left(tokens * each, 0), tokens) if start and each else None
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


def no_cache(log: Log, start: Start | None, said: Mapping[str, float]) -> Explanation:
    """Nothing, or less than nothing, is left for the cache: a shorter context would not help."""
    left = _left_at_all(log, start, said.get("tokens"))
    # no more than the engine found, whatever our estimates leave
    have = Left(min(left.bytes, 0), left.error) if left and "tokens" not in said else left
    ground = ground_of(log, start, have) if start else None
    remedies = for_any_cache(ground) if ground else ()
    words = f"{format_bytes(left.bytes)} are left" if left and left.bytes else "nothing is left"
    if "tokens" in said:
        words = f"there would be {int(said['tokens']):,} tokens"
    return Explanation(
        kind="cache",
        cause=f"no memory is left for the cache: {words} when weights and a step have theirs",
        needed_bytes=needed_bytes_of(start) if start else None,
        available_bytes=left.bytes if left else None,
        too_large=largest_term(log, start),
        remedies=remedies,
        advice=_without(remedies, ground),
    )


def _left_at_all(log: Log, start: Start | None, tokens: float | None) -> Left | None:
    """By the log, or our estimates."""
    if tokens is not None and start is not None and (each := bytes_per_token(start)):
        return Left(int(tokens * each), 0)
    return left_for_the_cache(log, start)


def runtime_full(log: Log, start: Start | None, said: Mapping[str, float]) -> Explanation:
    """An allocation of the runtime failed, of which the log says no size."""
    left, what = log.figures.get("free"), log.settings.get("component", "the cache")
    words = f": {left:.2f} GiB were free for {what}" if left is not None else ""
    plan = budgeted(start) if start else None
    ground = ground_of(log, start, None) if start and plan and not plan.fits else None
    advice = "not tried here: a smaller share of what is free for the cache, or more devices"
    if plan is not None and plan.fits:
        advice = (
            "by our reckoning it fits: a smaller share of what is free for the cache, or look what"
            " else holds memory of the device (nvidia-smi lists it)"
        )
    return Explanation(
        kind="runtime",
        cause=f"the device was full{words}",
        available_bytes=in_bytes(left),
        too_large=largest_term(log, start),
        remedies=for_more_devices(ground) if ground else (),
        advice=(advice,),
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
        yield (f"{most:,} tokens fit, says the engine ({flag} {most}; not tried here)")
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
