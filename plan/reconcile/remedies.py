"""What would make a failed start succeed: single changes, or where none does the fewest that do
together, each planned before it is named.

The plan of a change begins from the least memory that the log's figures leave open, to which comes
what the change adds by our reckoning. A change whose plan does not fit, or that does not free what
was missing where the start failed, is not offered.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations, product
from shlex import quote
from typing import Any

from headcount.model.errors import HeadcountError
from headcount.model.units import format_bytes

from ..devices import parse_device
from ..engines.engine import find_engine
from ..parallel import valid_tp
from ..plan import Plan, plan_model
from ..planned_model import PlannedModel
from ..request import PlanRequest
from ..stored import is_weighed
from .figures import reader_of
from .start import Start

_GIB, _MIB = 2**30, 2**20
_QUANTISED = "--quantization "  # of the engines whose logs name a method
_MOST_UTILISATION = 0.95  # beyond it, CUDA graphs and other processes find no room
_MOST_TP = 64
_SHORTEST = 2048  # tokens of a context that is worth to be offered
_OF_A_STEP = ("activations", "token_counts", "cuda_graphs")


@dataclass(frozen=True, kw_only=True, slots=True)
class Remedy:
    """`change` is a field of a request, and `value` what it would have to be. `command` starts the
    engine so, None where none could be made up."""

    change: str
    value: int | float | str
    text: str
    command: str | None
    kv_tokens: int
    concurrency: float

    def document(self) -> dict[str, object]:
        return {
            "change": self.change,
            "value": self.value,
            "text": self.text,
            "command": self.command,
            "kv_tokens": self.kv_tokens,
            "concurrency": round(self.concurrency, 2),
        }


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What is known of a start that failed: `have` bytes for the cache of each rank, None where the
    log does not say, of which `rounding` may be the log's; `free` and `total` bytes of the device,
    None likewise. `estimate` is the longest request by the engine's own account, which knows what
    the log rounds."""

    start: Start
    have: int | None
    rounding: int = 0
    free: int | None = None
    total: int | None = None
    estimate: int | None = None

    @property
    def request(self) -> PlanRequest:
        return self.start.request

    def utilisation(self) -> float | None:
        if self.request.utilisation is not None:
            return self.request.utilisation
        plan = self.budgeted(self.request)
        return plan.utilisation if plan else None

    def memory(self, request: PlanRequest) -> int | None:
        """Bytes for the cache under `request`; None where that cannot be told. A start that was
        told how many keeps them."""
        if self.start.told_kv_memory is not None:
            return request.kv_memory or self.have
        now, then = self.budgeted(self.request), self.budgeted(request)
        if then is not None and (self.have is None or now is not None):
            offset = 0 if self.have is None or now is None else self.have - now.available_bytes
            return then.available_bytes + offset
        changed = {n for n in ("tp", "pp", "dtype") if _of(request, n) != _of(self.request, n)}
        if self.have is None or changed:
            return None
        if request.utilisation == self.request.utilisation:
            return self.have
        share = self.utilisation()
        if share is None or request.utilisation is None or self.total is None:
            return None
        return self.have + int((request.utilisation - share) * self.total)

    def budgeted(self, request: PlanRequest) -> Plan | None:
        """The plan by our own budget; None where neither device nor weights are known."""
        if request.device is None or not is_weighed(self.start.model):
            return None
        try:
            return plan_model(self.start.model, replace(request, kv_memory=None))
        except HeadcountError:
            return None

    def plan(self, **changed: object) -> Plan | None:
        """The plan of the changed start, in the least memory that it would have; None where it does
        not fit, or cannot be told."""
        request = replace(self.request, **changed)  # type: ignore[arg-type]
        size = self.memory(request)
        if size is None or (size := size - self.rounding) <= 0:
            return None
        try:
            plan = plan_model(self.start.model, replace(request, kv_memory=size))
        except HeadcountError:
            return None
        return plan if plan.fits else None

    def step_bytes(self, **changed: object) -> int | None:
        """What a step takes beside weights and cache under the changed start; None where that
        cannot be told."""
        plan = self.budgeted(replace(self.request, **changed))  # type: ignore[arg-type]
        if plan is None:
            return None
        return sum(term.bytes for term in plan.taken if term.key in _OF_A_STEP)

    def largest_context(self) -> int | None:
        """Tokens of the longest request that surely fits, or that the engine itself found, where
        that is what the rounded memory may hold; None where none does, or memory sets no limit."""
        least, most = self._longest(-self.rounding), self._longest(self.rounding)
        if self.estimate and least and most and least <= self.estimate <= most:
            return self.estimate
        return least

    def _longest(self, more: int) -> int | None:
        size = self.memory(self.request)
        if size is None or (size := size + more) <= 0:
            return None
        plan = plan_model(self.start.model, replace(self.request, kv_memory=size))
        found, most = plan.limits.max_context, plan.spec.max_position_embeddings
        return min(found, most or found) if found else None

    def command(self, **changed: object) -> str | None:
        """What starts the engine with the change, and with weights as they were loaded."""
        told = self.start.told_kv_memory
        request = replace(self.request, **{"kv_memory": told, **changed})  # type: ignore[arg-type]
        model = _called(self.start.model, self.start.called)
        device = request.device or parse_device("1024GiB")
        try:
            command = plan_model(model, replace(request, device=device)).launch_command
        except HeadcountError:
            return None
        method = self.start.quantization
        takes = "quantization" in reader_of(self.start).settings.values()
        if command is None or method is None or not takes or _QUANTISED in command:
            return command
        if command.endswith(")'"):  # of a class, whose arguments have the options' names
            return f"{command[:-2]}, quantization={json.dumps(method)})'"
        return f"{command} {_QUANTISED}{quote(method)}"


@lru_cache(maxsize=8)
def _called(model: PlannedModel, name: str) -> PlannedModel:
    """One value for all commands: what is worked out of a model is kept by it."""
    return replace(model, model_id=name)


def _of(request: PlanRequest, name: str) -> object:
    return getattr(request, name)


_Kind = Callable[[Ground], Iterator[Remedy]]
_SEQUENCES = (512, 256, 128, 64, 32, 16)


def for_the_cache(ground: Ground) -> tuple[Remedy, ...]:
    """Where the cache is too small: from what costs nothing over what costs precision or length to
    what needs more devices or other weights."""
    kinds: tuple[_Kind, ...] = (
        *(_told_memory, _utilisation, _sequences, _eager, _cache_type, _context, _experts_off),
        *(_layers_off, _tp, _weights),
    )
    return _or_together(ground, _first_of_each(ground, kinds), _every_value(ground))


def for_any_cache(ground: Ground) -> tuple[Remedy, ...]:
    """Where nothing is left for a cache of whatever length: what leaves some, first."""
    kinds: tuple[_Kind, ...] = (_utilisation, _sequences, _eager, _tp, _weights)
    return _or_together(ground, _first_of_each(ground, kinds), _every_value(ground))


def for_the_profile(ground: Ground, short: int) -> tuple[Remedy, ...]:
    """Where the profiled step found `short` bytes too few beside the weights: a smaller step, or
    fewer weights on each device. There is no cache yet that could give way."""
    now = ground.step_bytes()

    def is_enough(changed: Mapping[str, Any]) -> bool:
        then = ground.step_bytes(**changed)
        return now is not None and then is not None and now - then >= max(short, 1)

    def alone(remedy: Remedy) -> bool:
        return is_enough({remedy.change: remedy.value})

    kinds: tuple[_Kind, ...] = (
        lambda ground: filter(alone, _sequences(ground)),
        lambda ground: filter(alone, _step_tokens(ground)),
        *(_tp, _weights),
    )
    found = _first_of_each(ground, kinds)
    return _or_together(ground, found, _every_value(ground), is_enough)


def beside_the_cache(
    ground: Ground, short: int, *, is_capture: bool = False, sequences: int | None = None
) -> tuple[Remedy, ...]:
    """Where the sampler, CUDA graphs or a step found `short` bytes too few beside the cache, which
    takes whatever a smaller profile leaves: less for the cache, no graphs where they were captured,
    or at most so many `sequences`."""
    kinds: list[_Kind] = [lambda ground: _less(ground, short)]
    freeing: dict[str, tuple[Any, ...]] = {"utilisation": tuple(_lower_share(ground, short))}
    if is_capture:
        kinds.append(_eager)
        freeing["enforce_eager"] = (True,)
    if sequences is not None:
        kinds.append(lambda ground: _sequences(ground, sequences))
        freeing["max_num_seqs"] = tuple(_fewer_sequences(ground, sequences))
    found = _first_of_each(ground, tuple(kinds))
    values = {**_every_value(ground), "enforce_eager": (), "max_num_seqs": (), **freeing}
    return _or_together(ground, found, values, lambda changed: bool(changed.keys() & freeing))


def for_the_weights(ground: Ground) -> tuple[Remedy, ...]:
    """Where the device was full before all weights were there: a larger share would not help."""
    return _first_of_each(ground, (_experts_off, _layers_off, _tp, _weights))


def for_more_devices(ground: Ground) -> tuple[Remedy, ...]:
    """Where an allocation failed of which the log says no size."""
    return _first_of_each(ground, (_tp,))


def for_the_device(ground: Ground) -> tuple[Remedy, ...]:
    """Where others hold memory of it: what is free may be taken, if that suffices; if not, with
    what else it takes to fit in it."""
    found = _first_of_each(ground, (_what_is_free,))
    share = _free_share(ground)
    values = {**_every_value(ground), "utilisation": () if share is None else (share,)}
    return _or_together(ground, found, values, lambda changed: "utilisation" in changed)


def _first_of_each(ground: Ground, kinds: tuple[_Kind, ...]) -> tuple[Remedy, ...]:
    found = (next(kind(ground), None) for kind in kinds)
    return tuple(remedy for remedy in found if remedy is not None)


def _try(ground: Ground, what: str, value: int | float | str, text: str) -> Iterator[Remedy]:
    """None where the engine's command cannot say it: that would start something else."""
    if (plan := ground.plan(**{what: value})) is None:
        return
    command = ground.command(**{what: value})
    if command is None or command == ground.command():
        return
    yield Remedy(
        change=what,
        value=value,
        text=text,
        command=command,
        kv_tokens=plan.kv_tokens,
        concurrency=plan.concurrency,
    )


def _told_memory(ground: Ground) -> Iterator[Remedy]:
    """Of a start that was told how many bytes to take: as many as a request needs, where the device
    has them by our reckoning."""
    budget = ground.budgeted(ground.request)
    if ground.start.told_kv_memory is None or budget is None:
        return
    value = (budget.kv_cache_bytes + 2 * ground.rounding) // _MIB * _MIB
    if value <= budget.available_bytes - budget.error_bytes:
        yield from _try(ground, "kv_memory", value, f"{format_bytes(value)} for the cache")


def _most_share(ground: Ground) -> float | None:
    """In hundredths; None where it is no more than the start had, or that is not known."""
    share = ground.utilisation()
    if share is None or (ground.total is None and ground.request.device is None):
        return None
    most = _MOST_UTILISATION
    if ground.free is not None and ground.total:
        most = min(most, ground.free / ground.total)
    most = int(most * 100) / 100
    return most if most > share else None


def _utilisation(ground: Ground) -> Iterator[Remedy]:
    share, most = ground.utilisation(), _most_share(ground)
    if share is None or most is None:
        return
    for percent in range(int(share * 100) + 1, round(most * 100) + 1):
        value = percent / 100
        yield from _try(ground, "utilisation", value, f"utilisation {value:.2f}")


def _free_share(ground: Ground) -> float | None:
    """The share of the device that is free, in hundredths; None where that is not known, or 0."""
    if ground.free is None or not ground.total:
        return None
    return int(ground.free / ground.total * 100) / 100 or None


def _what_is_free(ground: Ground) -> Iterator[Remedy]:
    if (value := _free_share(ground)) is not None:
        yield from _try(ground, "utilisation", value, f"utilisation {value:.2f}: what is free")


def _lower_share(ground: Ground, short: int) -> Iterator[float]:
    """One that leaves what was missing, and a hundredth."""
    share = ground.utilisation()
    total = ground.total or (ground.request.device and ground.request.device.usable_memory)
    if share is None or not total:
        return
    value = int((share - short / total - 0.01) * 100) / 100
    if value > 0:
        yield value


def _less(ground: Ground, short: int) -> Iterator[Remedy]:
    for value in _lower_share(ground, short):
        yield from _try(ground, "utilisation", value, f"utilisation {value:.2f}")


def _fewer_sequences(ground: Ground, most: int = 512) -> Iterator[int]:
    """Of an engine that profiles the sampler for as many sequences as it may run."""
    if find_engine(ground.request.engine).profiles_sequences:
        had = ground.request.max_num_seqs or 1024
        yield from (value for value in _SEQUENCES if value <= most and value < had)


def _sequences(ground: Ground, most: int = 512) -> Iterator[Remedy]:
    for value in _fewer_sequences(ground, most):
        yield from _try(ground, "max_num_seqs", value, f"at most {value} sequences a step")


def _fewer_tokens(ground: Ground) -> Iterator[int]:
    """Of an engine that profiles a step of as many tokens as it may run."""
    if "max_num_batched_tokens" in find_engine(ground.request.engine).options:
        had = ground.request.max_num_batched_tokens or 16384
        yield from (value for value in (8192, 4096, 2048, 1024) if value < had)


def _step_tokens(ground: Ground) -> Iterator[Remedy]:
    for value in _fewer_tokens(ground):
        text = f"at most {value:,} tokens a step"
        yield from _try(ground, "max_num_batched_tokens", value, text)


def _eager(ground: Ground) -> Iterator[Remedy]:
    takes = "enforce_eager" in find_engine(ground.request.engine).options
    if takes and not ground.request.enforce_eager:
        yield from _try(ground, "enforce_eager", True, "no CUDA graphs, which is slower")


def _cache_type(ground: Ground) -> Iterator[Remedy]:
    for name in find_engine(ground.request.engine).narrower_caches:
        if ground.request.kv_dtype != name:
            yield from _try(ground, "kv_dtype", name, f"a cache of {name}")


def _context(ground: Ground) -> Iterator[Remedy]:
    most, asked = ground.largest_context(), ground.request.context
    if most and most == ground.estimate:  # which the engine has tried: no less of it is sure
        ground = replace(ground, rounding=0)
        most = min(most, ground.largest_context() or most)
    if most and (asked is None or most < asked):
        yield from _try(ground, "context", most, f"a context of {most:,} tokens")


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


def _every_value(ground: Ground) -> dict[str, tuple[Any, ...]]:
    """Those of each change that are tried beside others, the mildest first."""
    engine, most = find_engine(ground.request.engine), _most_share(ground)
    takes_graphs = "enforce_eager" in engine.options and not ground.request.enforce_eager
    return {
        "utilisation": () if most is None else (most,),
        "max_num_seqs": tuple(_fewer_sequences(ground))[1::2],
        "max_num_batched_tokens": tuple(_fewer_tokens(ground))[-2:-1],
        "enforce_eager": (True,) if takes_graphs else (),
        "kv_dtype": tuple(n for n in engine.narrower_caches if n != ground.request.kv_dtype)[:1],
        "context": (_LONGEST,),
    }


def _or_together(
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
    changed = {name: tried[-1] for name, tried in values.items() if tried and name != "context"}
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
                    yield from _try_all(ground, changed)


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


def _try_all(ground: Ground, changed: Mapping[str, Any]) -> Iterator[Remedy]:
    if (plan := ground.plan(**changed)) is None:
        return
    command = ground.command(**changed)
    if command is None or command == ground.command():
        return
    yield Remedy(
        change=" and ".join(changed),
        value=next(iter(changed.values())) if len(changed) == 1 else _joined(changed.values()),
        text=_in_words(changed),
        command=command,
        kv_tokens=plan.kv_tokens,
        concurrency=plan.concurrency,
    )


def _joined(values: Iterable[Any]) -> str:
    return " and ".join(str(value) for value in values)


def _in_words(changed: Mapping[str, Any]) -> str:
    return _joined(_WORDS[name].format(value) for name, value in changed.items())


def _experts_off(ground: Ground) -> Iterator[Remedy]:
    """Of a mixture of experts, where the engine can leave those of some layers to the host."""
    takes = "n_cpu_moe" in find_engine(ground.request.engine).options
    if takes and not ground.request.cpu_moe and ground.start.model.has_experts:
        for count in range(
            (ground.request.n_cpu_moe or 0) + 1, len(ground.start.model.spec.layers)
        ):
            text = f"experts of {count} layers in the host's memory"
            yield from _try(ground, "n_cpu_moe", count, text)


def _layers_off(ground: Ground) -> Iterator[Remedy]:
    """The most layers on the device with which it fits."""
    if "gpu_layers" not in find_engine(ground.request.engine).options:
        return
    most = len(ground.start.model.spec.layers) + 1
    had = ground.request.gpu_layers
    for count in range(min(most, most if had is None else had) - 1, 0, -1):
        yield from _try(ground, "gpu_layers", count, f"{count} layers on the device")


def _tp(ground: Ground) -> Iterator[Remedy]:
    for tp in valid_tp(ground.start.model.spec):
        if ground.request.tp < tp <= _MOST_TP:
            devices = tp * ground.request.pp
            yield from _try(ground, "tp", tp, f"tp {tp} ({devices} devices)")


def _weights(ground: Ground) -> Iterator[Remedy]:
    if "quantization_config" in ground.start.model.config:
        return
    for name in find_engine(ground.request.engine).narrower_weights:
        if ground.request.dtype != name:
            yield from _try(ground, "dtype", name, f"weights of {name}")
