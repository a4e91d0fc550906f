"""Changes that make a failed start succeed together, where no one that costs little does."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations, product
from typing import Any

from ..engines.engine import find_engine
from .ground import Ground, Remedy, joined, tried
from .one_change import fewer_sequences, fewer_tokens, most_share

_SHORTEST = 2048  # tokens of a context that is worth to be offered
# What costs nothing, or little, in the order in which it is tried; a context that is as long as
# the others leave it, last.
_MILD = ("utilisation", "max_num_seqs", "max_num_batched_tokens", "enforce_eager", "kv_dtype")
_LONGEST = "as long as it may be"
_WORDS = {
    "utilisation": "utilisation {:.2f}",
    "max_num_seqs": "at most {} sequences a step",
    "max_num_batched_tokens": "at most {:,} tokens a step",
    "enforce_eager": "no CUDA graphs",
    "kv_dtype": "a cache of {}",
    "context": "a context of {:,} tokens",
}


def every_value(ground: Ground) -> dict[str, tuple[Any, ...]]:
    """Those of each change that are tried beside others, the mildest first."""
    engine, most = find_engine(ground.request.engine), most_share(ground)
    takes_graphs = "enforce_eager" in engine.options and not ground.request.enforce_eager
    return {
        "utilisation": () if most is None else (most,),
        "max_num_seqs": tuple(fewer_sequences(ground))[1::2],
        "max_num_batched_tokens": tuple(fewer_tokens(ground))[-2:-1],
        "enforce_eager": (True,) if takes_graphs else (),
        "kv_dtype": tuple(n for n in engine.narrower_caches if n != ground.request.kv_dtype)[:1],
        "context": (_LONGEST,),
    }


def or_together(
    ground: Ground,
    found: tuple[Remedy, ...],
    values: Mapping[str, tuple[Any, ...]],
    is_enough: Callable[[Mapping[str, Any]], bool] = lambda changed: True,
) -> tuple[Remedy, ...]:
    """Where no one change that costs little suffices, the fewest that do together: those that keep
    the context, and those that shorten it."""
    if {remedy.change for remedy in found} - {"tp", "dtype"} or not _leave_some(ground, values):
        return found
    keeping, shortening = _MILD, (*_MILD, "context")
    together = (
        next(_together(ground, names, values, is_enough), None) for names in (keeping, shortening)
    )
    offered = {remedy.change: remedy for remedy in together if remedy is not None}
    return (*offered.values(), *found)


def _leave_some(ground: Ground, values: Mapping[str, tuple[Any, ...]]) -> bool:
    """Whether all of them at once would leave any memory for a cache."""
    changed = {name: n[-1] for name, n in values.items() if n and name != "context"}
    size = ground.memory(replace(ground.request, **changed))
    return size is not None and size > ground.rounding


def _together(
    ground: Ground,
    names: tuple[str, ...],
    values: Mapping[str, tuple[Any, ...]],
    is_enough: Callable[[Mapping[str, Any]], bool],
) -> Iterator[Remedy]:
    """Each is planned whole, as a single change is."""
    own = [name for name in names if values.get(name)]
    for count in range(2, len(own) + 1):
        for chosen in combinations(own, count):
            if names[-1] == "context" and "context" not in chosen:
                continue
            for picked in product(*(values[name] for name in chosen)):
                changed = dict(zip(chosen, picked, strict=True))
                if changed.get("context") == _LONGEST:
                    changed = _with_longest(ground, changed)
                if changed and is_enough(changed):
                    yield from tried(ground, changed, _in_words(changed))


def _with_longest(ground: Ground, changed: Mapping[str, Any]) -> dict[str, Any]:
    """With the longest context that the other changes leave room for; nothing where that is not
    worth to be offered, or no shorter than it was."""
    others = {name: value for name, value in changed.items() if name != "context"}
    request = replace(ground.request, **others)
    size = ground.memory(request)
    if size is None:
        return {}
    start = replace(ground.start, request=request)
    most = replace(ground, start=start, have=size, estimate=None).largest_context()
    if not most or most < _SHORTEST or most >= (ground.request.context or most + 1):
        return {}
    return {**others, "context": most}


def _in_words(changed: Mapping[str, Any]) -> str:
    return joined(_WORDS[name].format(value) for name, value in changed.items())
