"""Starts for which a device, or the host, had too little memory."""

from collections.abc import Mapping
from dataclasses import replace

from ..budget import Term
from ..engines.start_log import Failure, Log
from .explanation import Explanation
from .ground import Ground, Remedy
from .memory_of_a_start import (
    budgeted,
    ground_of,
    in_bytes,
    left_for_the_cache,
    needed_bytes_of,
    rounded,
)
from .remedies import (
    beside_the_cache,
    for_the_cache,
    for_the_device,
    for_the_profile,
    for_the_weights,
)
from .start import Start

_GIB = 2**30
_NO_TOLL = 1.0  # GiB that a device's own services may hold


def occupied(log: Log, start: Start | None, said: Mapping[str, float]) -> Explanation:
    """Less of the device is free at the start than is to be taken."""
    free, total, requested = said["free"], said["total"], said["requested"]
    share = int(free / total * 100) / 100 if total else 0.0
    ground = ground_of(log, start, None) if start else None
    remedies = for_the_device(ground) if ground else ()
    holders = f"others hold {total - free:.2f} GiB of it: end them (nvidia-smi lists them), or"
    advice = f"{holders} start with a utilisation of at most {share:.2f}"
    if remedies and all(" and " in remedy.change for remedy in remedies):
        advice += ", which alone is not enough"
    if ground is not None and not remedies and budgeted(ground.start) is not None:
        advice = f"{holders} nothing: with {share:.2f} of the device this model does not fit"
    return Explanation(
        kind="occupied",
        cause=f"{requested:.2f} GiB are to be taken of the device and {free:.2f} of {total:.2f} GiB"
        " are free: other processes hold the rest",
        needed_bytes=in_bytes(requested),
        available_bytes=in_bytes(free),
        too_large="memory that other processes hold",
        largest_context=None,
        remedies=remedies,
        advice=(advice,),
    )


def unbalanced(log: Log, start: Start | None, said: Mapping[str, float]) -> Explanation:
    """Ranks find different memory free."""
    least, own = said.get("least"), said.get("own")
    words = f" ({least:.2f} GiB on one, {own:.2f} on another)" if least and own else ""
    return Explanation(
        kind="unbalanced",
        cause=f"the devices have different memory free{words}: other processes hold some",
        needed_bytes=in_bytes(own),
        available_bytes=in_bytes(least),
        too_large="memory that other processes hold",
        advice=("end what else runs on the devices (nvidia-smi lists it), and start again",),
    )


def changed_meanwhile(log: Log, start: Start | None, said: Mapping[str, float]) -> Explanation:
    """More was free after the profiled step than before."""
    return Explanation(
        kind="changed",
        cause=f"{said['before']:.2f} GiB were free before the profiled step and"
        f" {said['after']:.2f} after it: another process gave memory back meanwhile",
        needed_bytes=in_bytes(said["after"]),
        available_bytes=in_bytes(said["before"]),
        too_large="memory that other processes held",
        advice=("start again once the other process has ended, or one after the other",),
    )


def host_full(log: Log, start: Start | None, said: Mapping[str, float]) -> Explanation:
    """What does not fit on the devices does not fit in the host's memory either."""
    needed, available = said["needed"], said["available"]
    return Explanation(
        kind="host",
        cause=f"{needed:.2f} GiB of the host's memory are needed, {available:.2f} GiB are free",
        needed_bytes=in_bytes(needed),
        available_bytes=in_bytes(available),
        too_large="what does not fit on the devices",
        advice=(
            "a smaller context or fewer parallel requests, a narrower cache, or weights of fewer"
            f" bits: {needed - available:.2f} GiB less are needed",
        ),
    )


def sampler_too_large(log: Log, start: Start | None, said: Mapping[str, float]) -> Explanation:
    """The sampler's warm-up found no room: beside the cache, or before there was one."""
    count = int(said["sequences"])
    failure = log.failures.get("memory")
    tried, free = _tried(failure)
    profiled = start is not None and _is_before_a_cache(log, start)
    remedies = _for_the_sampler(log, start, profiled, tried, free) if start else ()
    when = "in the profiled step" if profiled else "beside the cache"
    detail = (
        f": {tried:.2f} GiB more were asked for, {free:.2f} were free" if tried and free else ""
    )
    return Explanation(
        kind="sampler",
        cause=f"the sampler's warm-up for {count:,} sequences found no room {when}{detail}",
        needed_bytes=in_bytes(tried),
        available_bytes=in_bytes(free),
        too_large=f"the sampler of {count:,} sequences",
        remedies=remedies,
        advice=() if remedies else (_FOR_THE_SAMPLER,),
    )


def _is_before_a_cache(log: Log, start: Start) -> bool:
    """Whether it was the profiled step's: the traceback says so, or by our reckoning nothing would
    have been left for a cache."""
    if log.failures["sampler"].reached & {"available_gib", "kv_tokens", "num_blocks"}:
        return False
    plan = budgeted(start)
    return log.settings.get("phase") == "profile" or (
        plan is not None and plan.available_bytes <= 0
    )


def _for_the_sampler(
    log: Log, start: Start, profiled: bool, tried: float | None, free: float | None
) -> tuple[Remedy, ...]:
    short = int(max(0.0, (tried or 0.0) - (free or 0.0)) * _GIB)
    if profiled:
        return for_the_profile(ground_of(log, start, None), short)
    count = start.request.max_num_seqs or 0
    fewer = int(count * free / tried) if tried and free else _that_surely_run(start, count)
    ground = ground_of(log, start, left_for_the_cache(log, start))
    return beside_the_cache(ground, short, sequences=fewer)


def _that_surely_run(start: Start, count: int) -> int | None:
    """Of `count` sequences, for whose sampler nothing else has to give way: it fits in what the
    utilisation leaves of the device. None where that is not known."""
    plan, device = budgeted(start), start.request.device
    if plan is None or device is None or plan.budget_bytes is None:
        return None
    step = sum(term.bytes for term in plan.taken if term.key == "activations")
    left = device.usable_memory - plan.budget_bytes
    return int(count * min(1.0, left / step)) if step else None


_FOR_THE_SAMPLER = "not tried here: fewer sequences (--max-num-seqs), or a smaller utilisation"


def _tried(failure: Failure | None) -> tuple[float | None, float | None]:
    if failure is None:
        return None, None
    return failure.values.get("tried"), failure.values.get("free")


def weights_too_large(log: Log, start: Start | None, said: Mapping[str, float]) -> Explanation:
    """The engine says that the weights do not fit."""
    failure = log.failures.get("memory")
    return _while_loading(log, start, failure.values if failure else {})


def out_of_memory(log: Log, start: Start | None, said: Mapping[str, float]) -> Explanation:
    """torch's error: what it stopped goes by what had been logged before, or by its traceback."""
    reached = log.failures["memory"].reached
    phase = log.settings.get("phase")
    if phase is not None and phase != "weights":
        cached = frozenset({"available_gib"}) if phase != "profile" else frozenset[str]()
        return _in_a_step(log, start, said, reached | cached)
    if _others_hold(said) is not None and not reached & {"available_gib", "kv_tokens"}:
        return _held_by_others(log, start, said)
    if not reached & {"weights_gib", "available_gib", "kv_tokens", "num_blocks"}:
        if phase is None and start is None and "model" not in log.settings:
            return _at_some_time(log, said)
        if phase is None and start is not None and _is_beyond_weights(start, said):
            return _after_loading(log, start, said)
        return _while_loading(log, start, said)
    return _in_a_step(log, start, said, reached)


def _at_some_time(log: Log, said: Mapping[str, float]) -> Explanation:
    """Of a piece of a log that does not show how far the start had come."""
    return Explanation(
        kind="memory",
        cause=f"the device was full{_capacity_words(said)}",
        needed_bytes=in_bytes(said.get("tried")),
        available_bytes=in_bytes(said.get("free")),
        advice=(
            "what was under way does not show: if the weights were loaded, more devices or weights"
            " of fewer bits; after that, a smaller utilisation or fewer sequences a step; the lines"
            " before, or --model, tell more",
        ),
    )


def _weights_terms(start: Start) -> tuple[Term, ...]:
    """What is loaded, by our reckoning; none where that is not known."""
    plan = budgeted(start)
    return tuple(term for term in plan.taken if term.key in _LOADED) if plan else ()


_LOADED = ("weights", "draft", "adapters")


def _is_beyond_weights(start: Start, said: Mapping[str, float]) -> bool:
    """Whether torch had more than all that is loaded takes, our error included."""
    loaded = sum(term.bytes + term.error_bytes for term in _weights_terms(start))
    return bool(loaded) and said.get("allocated", 0.0) * _GIB > loaded


def _after_loading(log: Log, start: Start, said: Mapping[str, float]) -> Explanation:
    """Something beside the weights found no room; what it was, the log does not say."""
    weights = sum(term.bytes for term in _weights_terms(start)) / _GIB
    ground = ground_of(log, start, None)
    return Explanation(
        kind="step",
        cause=f"the device was full when {said['allocated']:.2f} GiB were allocated by PyTorch, of"
        f" which weights take {weights:.2f} GiB: they were loaded, and what came on top is not"
        f" known{_capacity_words(said)}",
        needed_bytes=in_bytes(said.get("tried")),
        available_bytes=in_bytes(said.get("free")),
        too_large="not known: what is beside the weights",
        remedies=for_the_weights(ground),
        advice=(f"{_FOR_A_STEP}; lines of the log before the error tell which",),
    )


def _others_hold(said: Mapping[str, float]) -> float | None:
    """GiB of the device that neither this process has nor anybody: None where that is little."""
    names = ("capacity", "free", "used")
    if any(name not in said for name in names):
        return None
    others = said["capacity"] - said["free"] - said["used"]
    return others if others > _NO_TOLL else None


def _held_by_others(log: Log, start: Start | None, said: Mapping[str, float]) -> Explanation:
    """Whatever was loaded: without them there is more room than the device was short of."""
    others = _others_hold(said)
    plan = budgeted(start) if start else None
    without = "" if plan is None else ": by our reckoning the start fits an empty device"
    if plan is not None and not plan.fits:
        without = ", and take more or larger devices: it does not fit an empty one either"
    return Explanation(
        kind="occupied",
        cause=f"other processes hold {others:.2f} of {said['capacity']:.2f} GiB of the"
        f" device{_capacity_words(said)}",
        needed_bytes=in_bytes(said.get("tried")),
        available_bytes=in_bytes(said.get("free")),
        too_large="memory that other processes hold",
        advice=(f"end them (nvidia-smi lists them){without}",),
    )


def _capacity_words(said: Mapping[str, float]) -> str:
    if "tried" not in said:
        return ""
    tried = f"{said['tried']:.2f} GiB more were asked for"
    if "capacity" not in said:
        return f": {tried}"
    return f": {tried}, {said['free']:.2f} of {said['capacity']:.2f} GiB were free"


def _while_loading(log: Log, start: Start | None, said: Mapping[str, float]) -> Explanation:
    plan = budgeted(start) if start else None
    needed = plan.taken[0].bytes if plan else None
    capacity = said.get("capacity", log.figures.get("total"))
    fits = plan is not None and plan.fits
    words = f", of which a rank has {needed / _GIB:.2f} GiB" if needed else ""
    ground = ground_of(log, start, None) if start else None
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
    remedies = for_the_weights(ground) if ground and not fits else ()
    if plan is not None and not fits and not remedies:
        advice.append(
            "neither more such devices nor weights of fewer bits, as far as they were tried, hold"
            " it: a larger device"
        )
    return Explanation(
        kind="weights",
        cause=f"the device was full while the weights were loaded{words}{_capacity_words(said)}",
        needed_bytes=needed,
        available_bytes=in_bytes(capacity),
        too_large="weights",
        largest_context=None,
        remedies=remedies,
        advice=tuple(advice),
    )


def _in_a_step(
    log: Log, start: Start | None, said: Mapping[str, float], reached: frozenset[str]
) -> Explanation:
    """After the weights: in the profiled step, or beside the cache."""
    has_cache = bool(reached & {"available_gib", "kv_tokens", "num_blocks"})
    when = "beside the cache" if has_cache else "in the profiled step"
    short = int(max(0.0, said.get("tried", 0.0) - said.get("free", 0.0)) * _GIB)
    ground = ground_of(log, start, left_for_the_cache(log, start)) if start else None
    captures = log.settings.get("phase") == "graphs"
    remedies: tuple[Remedy, ...] = ()
    if ground is not None and has_cache:
        remedies = beside_the_cache(ground, short, is_capture=captures)
    elif ground is not None:
        remedies = for_the_profile(ground, short)
    what = "the capture of CUDA graphs" if captures else "a step, or the capture of CUDA graphs,"
    return Explanation(
        kind="step",
        cause=f"{what} found no room {when}{_capacity_words(said)}",
        needed_bytes=in_bytes(said.get("tried")),
        available_bytes=in_bytes(said.get("free")),
        too_large="activations and CUDA graphs" if has_cache else "activations",
        remedies=remedies,
        advice=() if remedies else (_FOR_A_STEP,),
    )


_FOR_A_STEP = "not tried here: a smaller utilisation, or fewer sequences and tokens a step"


def _left_of_device(log: Log, what: str) -> float | None:
    """GiB that were free before `what`, by what had been placed on the device until then."""
    free = log.figures.get("free")
    if free is None:
        return None
    placed = log.figures.get("on_device_gib", 0.0) if what != _OF_WEIGHTS else 0.0
    return free - placed - (log.figures.get("kv_gib", 0.0) if what == _OF_A_STEP else 0.0)


def buffer_too_large(log: Log, start: Start | None, said: Mapping[str, float]) -> Explanation:
    """An allocation of one buffer failed: of the weights, the cache, or a step."""
    buffer = log.failures.get("buffer")
    tried = buffer.values.get("tried") if buffer else None
    what = _what_was_allocated(log, buffer.reached if buffer else frozenset())
    size = f" of {tried:.2f} GiB" if tried else ""
    left = _left_of_device(log, what)
    if start is not None and what == _OF_CACHE and start.request.context is None and tried:
        start = _of_so_large_a_cache(start, tried)
    assumed = _assumed_context(start) if start else ()
    ground = None
    if start is not None and not _is_shared(log):
        ground = _ground_of_buffers(log, start, tried, left, what)
    is_weights = what == _OF_WEIGHTS
    remedies: tuple[Remedy, ...] = ()
    if ground is not None:
        remedies = for_the_weights(ground) if is_weights else for_the_cache(ground)
    free = f": {max(left, 0.0):.2f} GiB were free there" if left is not None else ""
    return Explanation(
        kind="buffer",
        cause=f"{what}{size} found no room on {_which_device(log)}{free}",
        needed_bytes=in_bytes(tried),
        available_bytes=in_bytes(left),
        too_large=what,
        largest_context=ground.largest_context() if ground and not is_weights else None,
        remedies=remedies,
        advice=(
            *assumed,
            *(() if remedies else (_FOR_WEIGHTS_OF_BUFFERS if is_weights else _FOR_BUFFERS,)),
        ),
    )


def _assumed_context(start: Start) -> tuple[str, ...]:
    """What stands for a context that the log does not say."""
    context, longest = start.request.context, start.model.spec.max_position_embeddings
    if "context" in start.said or (context is None and longest is None):
        return ()
    if context is None:
        return (
            f"the log says no context: the model's longest, {longest:,} tokens, is taken; --context"
            " says another",
        )
    return (f"the log says no context: the cache that found no room is of {context:,} tokens",)


def _of_so_large_a_cache(start: Start, gib: float) -> Start:
    """With the context whose cache has that size, of a log that does not say it; itself where
    caches are of several sizes."""
    needed = needed_bytes_of(start)
    longest = start.model.spec.max_position_embeddings
    if not needed or not longest:
        return start
    context = round(longest * gib * _GIB / needed)
    found = replace(start, request=replace(start.request, context=max(1, context)))
    size = needed_bytes_of(found)
    return found if size and abs(size - gib * _GIB) < 2**20 else start


_OF_WEIGHTS, _OF_CACHE, _OF_A_STEP = "the weights", "the cache", "a step's compute buffer"


def _what_was_allocated(log: Log, reached: frozenset[str]) -> str:
    """By the words beside the error, or what had been placed before."""
    # What allocates a cache's tensors says so in the same words as what allocates the weights.
    named = {"cells": _OF_CACHE, "compute": _OF_A_STEP, "tensors": _OF_WEIGHTS}
    told = next((what for kind, what in named.items() if kind in log.failures), None)
    if told is not None:
        return told
    if "kv_gib" in reached:
        return _OF_A_STEP
    return _OF_CACHE if "weights_gib" in reached else _OF_WEIGHTS


def _is_shared(log: Log) -> bool:
    """Whether several devices share the model, or its parts were placed by hand: what a change
    leaves on which is not planned."""
    return int(log.settings.get("devices", 1)) > 1 or bool(log.settings.get("placed_by_hand"))


def _which_device(log: Log) -> str:
    failure = log.failures.get("buffer")
    number = failure.values.get("device") if failure and _is_shared(log) else None
    return "the device" if number is None else f"device {int(number)}"


_FOR_WEIGHTS_OF_BUFFERS = (
    "not tried here: fewer layers on the device (-ngl), or a file with fewer bits; with --model and"
    " --device what fits is worked out"
)
_FOR_BUFFERS = (
    "not tried here: fewer layers on the device (-ngl), a smaller context (-c), a cache of q8_0"
    " (--cache-type-k, --cache-type-v) or a smaller micro-batch (-ub); with --model and --device"
    " what fits is worked out"
)


def _ground_of_buffers(
    log: Log, start: Start, tried: float | None, left: float | None, what: str
) -> Ground | None:
    """With what the device had left for the cache when weights and a step have theirs: by the
    buffer that was tried, or by our reckoning. None where neither tells."""
    plan = budgeted(start)
    taken = {term.key: term.bytes / _GIB for term in plan.taken} if plan else {}
    if left is None:
        return ground_of(log, start, None) if start.request.device else None
    if what == _OF_WEIGHTS:
        beside = taken["weights"] + taken.get("activations", 0.0) if "weights" in taken else None
        return None if beside is None else ground_of(log, start, rounded(left - beside))
    if what == _OF_A_STEP and tried is not None:
        return ground_of(log, start, rounded(left + log.figures.get("kv_gib", 0.0) - tried))
    return ground_of(log, start, rounded(left - taken.get("activations", 0.0)))
