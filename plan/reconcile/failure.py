"""What a start died of: what was needed, what there was, which term was too large, what to do."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from ..engines.start_log import Failure, Log
from . import cache_failures as cache
from . import device_failures as device
from .explanation import Explanation
from .likely_device import likely_device
from .memory_of_a_start import shares_of
from .start import Start

# What is told first where a log has several: the nearest to the cause.
_ORDER = (
    *("request", "tokens", "occupied", "unbalanced", "changed", "host", "sampler", "weights"),
    *("cache", "compute", "cells", "tensors", "buffer", "memory", "runtime"),
)


def first_failure(log: Log) -> Failure | None:
    """The one that explains the others; None of a start that did not fail."""
    return next((log.failures[kind] for kind in _ORDER if kind in log.failures), None)


def explain(log: Log, start: Start | None) -> Explanation | None:
    """Of a log that says what its start died of; None of one that does not. Without a `start`,
    since the model is not known, only what the log says itself."""
    failure = first_failure(log)
    if failure is None:
        return None
    found = _EXPLAIN[failure.kind](log, start, failure.values)
    return replace(found, shares=tuple(shares_of(log, start)))


def on_likely_device(start: Start) -> Start:
    """A start that failed, whose log names no device, on the one that its figures fit; itself where
    they fit none."""
    if first_failure(start.log) is None or start.request.device is not None:
        return start
    device = likely_device(start)
    if device is None:
        return start
    note = f"the log names no device: {device.name} is taken, which its figures fit"
    request = replace(start.request, device=device)
    return replace(start, request=request, notes=(*start.notes, note), device_is_guessed=True)


_EXPLAIN: dict[str, Callable[[Log, Start | None, Mapping[str, float]], Explanation]] = {
    "request": cache.request_too_long,
    "tokens": cache.tokens_too_many,
    "cache": cache.no_cache,
    "occupied": device.occupied,
    "unbalanced": device.unbalanced,
    "changed": device.changed_meanwhile,
    "host": device.host_full,
    "sampler": device.sampler_too_large,
    "weights": device.weights_too_large,
    "memory": device.out_of_memory,
    "buffer": device.buffer_too_large,
    "cells": device.buffer_too_large,
    "compute": device.buffer_too_large,
    "tensors": device.buffer_too_large,
    "runtime": cache.runtime_full,
}
