"""Single changes that may make a failed start succeed: of each kind those that fit, the mildest
first."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from headcount.model.units import format_bytes

from ..engines.engine import find_engine
from ..parallel import valid_tp
from .ground import Ground, Remedy, tried

_MIB = 2**20
_MOST_UTILISATION = 0.95  # beyond it, CUDA graphs and other processes find no room
_MOST_TP = 64
_SEQUENCES = (512, 256, 128, 64, 32, 16)
Kind = Callable[[Ground], Iterator[Remedy]]


def first_of_each(ground: Ground, kinds: tuple[Kind, ...]) -> tuple[Remedy, ...]:
    found = (next(kind(ground), None) for kind in kinds)
    return tuple(remedy for remedy in found if remedy is not None)


def _alone(ground: Ground, what: str, value: int | float | str, text: str) -> Iterator[Remedy]:
    return tried(ground, {what: value}, text)


def told_memory(ground: Ground) -> Iterator[Remedy]:
    """Of a start that was told how many bytes to take: as many as a request needs, where the device
    has them by our reckoning, or the host's memory may have them by the log's."""
    value = _enough(ground)
    if value is None:
        return
    budget, node = ground.budgeted(ground.request), ground.node_total
    words = f"{format_bytes(value)} for the cache"
    if budget is not None:
        if value <= budget.available_bytes - budget.error_bytes:
            yield from _alone(ground, "kv_memory", value, words)
    elif node is not None and value < node:
        words += ", if so much is free"
        yield from _alone(ground, "kv_memory", value, words)


def told_memory_of_any(ground: Ground) -> Iterator[Remedy]:
    """The same where nothing is known of the device."""
    value, budget = _enough(ground), ground.budgeted(ground.request)
    if value is not None and budget is None and ground.node_total is None:
        words = f"{format_bytes(value)} for the cache, if the device has so much"
        yield from _alone(ground, "kv_memory", value, words)


def _enough(ground: Ground) -> int | None:
    """Bytes for the cache that hold the longest request, in whole MiB; None of a start that was not
    told how many to take."""
    if ground.start.told_kv_memory is None:
        return None
    plan = ground.plan_in(1)
    return None if plan is None else -(-plan.kv_cache_bytes // _MIB) * _MIB


def most_share(ground: Ground) -> float | None:
    """In hundredths; None where it is no more than the start had, or that is not known."""
    share = ground.utilisation()
    if share is None or (ground.total is None and ground.request.device is None):
        return None
    most = _MOST_UTILISATION
    if ground.free is not None and ground.total:
        most = min(most, ground.free / ground.total)
    most = int(most * 100) / 100
    return most if most > share else None


def utilisation(ground: Ground) -> Iterator[Remedy]:
    share, most = ground.utilisation(), most_share(ground)
    if share is None or most is None:
        return
    for percent in range(int(share * 100) + 1, round(most * 100) + 1):
        value = percent / 100
        yield from _alone(ground, "utilisation", value, f"utilisation {value:.2f}")


def free_share(ground: Ground) -> float | None:
    """The share of the device that is free, in hundredths; None where that is not known, or 0."""
    if ground.free is None or not ground.total:
        return None
    return int(ground.free / ground.total * 100) / 100 or None


def what_is_free(ground: Ground) -> Iterator[Remedy]:
    if (value := free_share(ground)) is not None:
        yield from _alone(ground, "utilisation", value, f"utilisation {value:.2f}: what is free")


def lower_share(ground: Ground, short: int) -> Iterator[float]:
    """One that leaves what was missing, and a hundredth."""
    share = ground.utilisation()
    total = ground.total or (ground.request.device and ground.request.device.usable_memory)
    if share is None or not total:
        return
    value = int((share - short / total - 0.01) * 100) / 100
    if value > 0:
        yield value


def less(ground: Ground, short: int) -> Iterator[Remedy]:
    for value in lower_share(ground, short):
        yield from _alone(ground, "utilisation", value, f"utilisation {value:.2f}")


def fewer_sequences(ground: Ground, most: int = 512) -> Iterator[int]:
    """Of an engine that profiles the sampler for as many sequences as it may run."""
    if find_engine(ground.request.engine).profiles_sequences:
        had = ground.request.max_num_seqs or 1024
        yield from (value for value in _SEQUENCES if value <= most and value < had)


def sequences_of_a_step(ground: Ground, most: int = 512) -> Iterator[Remedy]:
    for value in fewer_sequences(ground, most):
        yield from _alone(ground, "max_num_seqs", value, f"at most {value} sequences a step")


def fewer_tokens(ground: Ground) -> Iterator[int]:
    """Of an engine that profiles a step of as many tokens as it may run."""
    if "max_num_batched_tokens" in find_engine(ground.request.engine).options:
        had = ground.request.max_num_batched_tokens or 16384
        yield from (value for value in (8192, 4096, 2048, 1024) if value < had)


def tokens_of_a_step(ground: Ground) -> Iterator[Remedy]:
    for value in fewer_tokens(ground):
        text = f"at most {value:,} tokens a step"
        yield from _alone(ground, "max_num_batched_tokens", value, text)


def eager(ground: Ground) -> Iterator[Remedy]:
    takes = "enforce_eager" in find_engine(ground.request.engine).options
    if takes and not ground.request.enforce_eager:
        yield from _alone(ground, "enforce_eager", True, "no CUDA graphs, which is slower")


def cache_type(ground: Ground) -> Iterator[Remedy]:
    for name in find_engine(ground.request.engine).narrower_caches:
        if ground.request.kv_dtype != name:
            yield from _alone(ground, "kv_dtype", name, f"a cache of {name}")


def context(ground: Ground) -> Iterator[Remedy]:
    most, asked = ground.largest_context(), ground.request.context
    if most and most == ground.estimate:  # which the engine has tried: no less of it is sure
        ground = replace(ground, rounding=0)
        most = min(most, ground.largest_context() or most)
    if most and (asked is None or most < asked):
        yield from _alone(ground, "context", most, f"a context of {most:,} tokens")


def experts_off(ground: Ground) -> Iterator[Remedy]:
    """Of a mixture of experts, where the engine can leave those of some layers to the host."""
    takes = "n_cpu_moe" in find_engine(ground.request.engine).options
    if takes and not ground.request.cpu_moe and ground.start.model.has_experts:
        for count in range(
            (ground.request.n_cpu_moe or 0) + 1, len(ground.start.model.spec.layers)
        ):
            text = f"experts of {count} layers in the host's memory"
            yield from _alone(ground, "n_cpu_moe", count, text)


def layers_off(ground: Ground) -> Iterator[Remedy]:
    """The most layers on the device with which it fits."""
    if "gpu_layers" not in find_engine(ground.request.engine).options:
        return
    most = len(ground.start.model.spec.layers) + 1
    had = ground.request.gpu_layers
    for count in range(min(most, most if had is None else had) - 1, 0, -1):
        yield from _alone(ground, "gpu_layers", count, f"{count} layers on the device")


def ranks(ground: Ground) -> Iterator[Remedy]:
    for tp in valid_tp(ground.start.model.spec):
        if ground.request.tp < tp <= _MOST_TP:
            devices = tp * ground.request.pp
            yield from _alone(ground, "tp", tp, f"tp {tp} ({devices} devices)")


def weights(ground: Ground) -> Iterator[Remedy]:
    if "quantization_config" in ground.start.model.config:
        return
    for name in find_engine(ground.request.engine).narrower_weights:
        if ground.request.dtype != name:
            yield from _alone(ground, "dtype", name, f"weights of {name}")
