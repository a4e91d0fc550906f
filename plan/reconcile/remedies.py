"""What would make a failed start succeed: single changes, or where none does the fewest that do
together, each planned before it is named. A change that does not free what was missing where the
start failed is not offered."""

from collections.abc import Mapping
from typing import Any

from .changes_together import every_value, or_together
from .ground import Ground, Remedy
from .one_change import (
    Kind,
    cache_type,
    context,
    eager,
    experts_off,
    fewer_sequences,
    first_of_each,
    free_share,
    layers_off,
    less,
    lower_share,
    ranks,
    sequences_of_a_step,
    tokens_of_a_step,
    told_memory,
    told_memory_of_any,
    utilisation,
    weights,
    what_is_free,
)


def for_the_cache(ground: Ground) -> tuple[Remedy, ...]:
    """Where the cache is too small: from what costs nothing over what costs precision or length to
    what needs more devices or other weights."""
    kinds: tuple[Kind, ...] = (
        *(told_memory, utilisation, sequences_of_a_step, eager, cache_type, context, experts_off),
        *(layers_off, ranks, weights, told_memory_of_any),
    )
    return or_together(ground, first_of_each(ground, kinds), every_value(ground))


def for_any_cache(ground: Ground) -> tuple[Remedy, ...]:
    """Where nothing is left for a cache of whatever length: what leaves some, first."""
    kinds: tuple[Kind, ...] = (utilisation, sequences_of_a_step, eager, ranks, weights)
    return or_together(ground, first_of_each(ground, kinds), every_value(ground))


def for_the_profile(ground: Ground, short: int) -> tuple[Remedy, ...]:
    """Where the profiled step found `short` bytes too few beside the weights: a smaller step, or
    fewer weights on each device. There is no cache yet that could give way."""
    now = ground.step_bytes()

    def is_enough(changed: Mapping[str, Any]) -> bool:
        then = ground.step_bytes(**changed)
        return now is not None and then is not None and now - then >= max(short, 1)

    def alone(remedy: Remedy) -> bool:
        return is_enough({remedy.change: remedy.value})

    kinds: tuple[Kind, ...] = (
        lambda ground: filter(alone, sequences_of_a_step(ground)),
        lambda ground: filter(alone, tokens_of_a_step(ground)),
        *(ranks, weights),
    )
    found = first_of_each(ground, kinds)
    return or_together(ground, found, every_value(ground), is_enough)


def beside_the_cache(
    ground: Ground, short: int, *, is_capture: bool = False, sequences: int | None = None
) -> tuple[Remedy, ...]:
    """Where the sampler, CUDA graphs or a step found `short` bytes too few beside the cache, which
    takes whatever a smaller profile leaves: less for the cache, no graphs where they were captured,
    or at most so many `sequences`."""
    kinds: list[Kind] = [lambda ground: less(ground, short)]
    freeing: dict[str, tuple[Any, ...]] = {"utilisation": tuple(lower_share(ground, short))}
    if is_capture:
        kinds.append(eager)
        freeing["enforce_eager"] = (True,)
    if sequences is not None:
        kinds.append(lambda ground: sequences_of_a_step(ground, sequences))
        freeing["max_num_seqs"] = tuple(fewer_sequences(ground, sequences))
    found = first_of_each(ground, tuple(kinds))
    values = {**every_value(ground), "enforce_eager": (), "max_num_seqs": (), **freeing}
    return or_together(ground, found, values, lambda changed: bool(changed.keys() & freeing))


def for_the_weights(ground: Ground) -> tuple[Remedy, ...]:
    """Where the device was full before all weights were there: a larger share would not help."""
    return first_of_each(ground, (experts_off, layers_off, ranks, weights))


def for_more_devices(ground: Ground) -> tuple[Remedy, ...]:
    """Where an allocation failed of which the log says no size."""
    return first_of_each(ground, (ranks,))


def for_the_device(ground: Ground) -> tuple[Remedy, ...]:
    """Where others hold memory of it: what is free may be taken, if that suffices; if not, with
    what else it takes to fit in it."""
    found = first_of_each(ground, (what_is_free,))
    share = free_share(ground)
    values = {**every_value(ground), "utilisation": () if share is None else (share,)}
    return or_together(ground, found, values, lambda changed: "utilisation" in changed)
