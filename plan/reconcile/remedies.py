"""What would make a failed start succeed: single changes, each planned before it is named.

The plan of a change begins from the memory that the log says was there, to which comes what the
change adds by our reckoning. A change whose plan does not fit is not offered.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from headcount.model.errors import HeadcountError

from ..devices import parse_device
from ..engines.engine import find_engine
from ..parallel import valid_tp
from ..plan import Plan, plan_model
from ..request import PlanRequest
from ..stored import is_weighed
from .start import Start

_GIB = 2**30
_MOST_UTILISATION = 0.95  # beyond it, CUDA graphs and other processes find no room
_MOST_TP = 64
_SHORTEST = 2048  # tokens of a context that is worth to be offered
_WEIGHTS = ("float8_e4m3fn", "int4")


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
    log does not say; `free` and `total` bytes of the device, None likewise."""

    start: Start
    have: int | None
    free: int | None = None
    total: int | None = None

    @property
    def request(self) -> PlanRequest:
        return self.start.request

    def utilisation(self) -> float | None:
        if self.request.utilisation is not None:
            return self.request.utilisation
        plan = self._budgeted(self.request)
        return plan.utilisation if plan else None

    def memory(self, request: PlanRequest) -> int | None:
        """Bytes for the cache under `request`; None where that cannot be told."""
        now, then = self._budgeted(self.request), self._budgeted(request)
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

    def _budgeted(self, request: PlanRequest) -> Plan | None:
        """None where neither device nor weights are known."""
        if request.device is None or not is_weighed(self.start.model):
            return None
        try:
            return plan_model(self.start.model, replace(request, kv_memory=None))
        except HeadcountError:
            return None

    def plan(self, **changed: object) -> Plan | None:
        """The plan of the changed start, in the memory that it would have; None where it does not
        fit, or cannot be told."""
        request = replace(self.request, **changed)  # type: ignore[arg-type]
        size = self.memory(request)
        if size is None or size <= 0:
            return None
        try:
            plan = plan_model(self.start.model, replace(request, kv_memory=size))
        except HeadcountError:
            return None
        return plan if plan.fits else None

    def largest_context(self, more: int = 0) -> int | None:
        """Tokens of the longest request that fits, in so many bytes `more`; None where none does,
        or memory sets no limit."""
        size = self.memory(self.request)
        if size is None or (size := size + more) <= 0:
            return None
        plan = plan_model(self.start.model, replace(self.request, kv_memory=size))
        return plan.limits.max_context or None

    def command(self, **changed: object) -> str | None:
        """What starts the engine with the change."""
        request = replace(self.request, **{"kv_memory": None, **changed})  # type: ignore[arg-type]
        model = replace(self.start.model, model_id=self.start.called)
        device = request.device or parse_device("1024GiB")
        try:
            return plan_model(model, replace(request, device=device)).launch_command
        except HeadcountError:
            return None


def _of(request: PlanRequest, name: str) -> object:
    return getattr(request, name)


_Kind = Callable[[Ground], Iterator[Remedy]]


def for_the_cache(ground: Ground) -> tuple[Remedy, ...]:
    """Where the cache is too small: from what costs nothing over what costs precision or length to
    what needs more devices or other weights."""
    kinds: tuple[_Kind, ...] = (
        *(_utilisation, _sequences, _eager, _cache_type, _context, _tp, _weights),
    )
    found = _first_of_each(ground, kinds)
    mild = {remedy.change for remedy in found} - {"tp", "dtype"}
    return found if mild else (*_first_of_each(ground, (_shorter_and,)), *found)


def for_the_step(ground: Ground, short: int) -> tuple[Remedy, ...]:
    """Where a step, the sampler or CUDA graphs found `short` bytes too few: less for the cache, or
    less for the step."""
    kinds: tuple[_Kind, ...] = (
        lambda ground: _less(ground, short),
        *(_sequences, _eager, _tp, _weights),
    )
    return _first_of_each(ground, kinds)


def for_the_weights(ground: Ground) -> tuple[Remedy, ...]:
    return _first_of_each(ground, (_utilisation, _tp, _weights))


def for_the_device(ground: Ground) -> tuple[Remedy, ...]:
    """Where others hold memory of it: what is free may be taken, if that suffices."""
    return _first_of_each(ground, (_what_is_free,))


def _first_of_each(ground: Ground, kinds: tuple[_Kind, ...]) -> tuple[Remedy, ...]:
    found = (next(kind(ground), None) for kind in kinds)
    return tuple(remedy for remedy in found if remedy is not None)


def _try(ground: Ground, what: str, value: int | float | str, text: str) -> Iterator[Remedy]:
    """None where the engine's command cannot say it: that would start something else."""
    plan, command = ground.plan(**{what: value}), ground.command(**{what: value})
    if plan is None or command is None or command == ground.command():
        return
    yield Remedy(
        change=what,
        value=value,
        text=text,
        command=command,
        kv_tokens=plan.kv_tokens,
        concurrency=plan.concurrency,
    )


def _utilisation(ground: Ground) -> Iterator[Remedy]:
    share = ground.utilisation()
    if share is None or (ground.total is None and ground.request.device is None):
        return
    most = _MOST_UTILISATION
    if ground.free is not None and ground.total:
        most = min(most, ground.free / ground.total)
    for percent in range(int(share * 100) + 1, int(most * 100) + 1):
        value = percent / 100
        yield from _try(ground, "utilisation", value, f"utilisation {value:.2f}")


def _what_is_free(ground: Ground) -> Iterator[Remedy]:
    if ground.free is None or not ground.total:
        return
    value = int(ground.free / ground.total * 100) / 100
    if value > 0:
        yield from _try(ground, "utilisation", value, f"utilisation {value:.2f}: what is free")


def _less(ground: Ground, short: int) -> Iterator[Remedy]:
    """A share that leaves what was missing, and a hundredth."""
    share = ground.utilisation()
    total = ground.total or (ground.request.device and ground.request.device.usable_memory)
    if share is None or not total:
        return
    value = int((share - short / total - 0.01) * 100) / 100
    if value > 0:
        yield from _try(ground, "utilisation", value, f"utilisation {value:.2f}")


def _sequences(ground: Ground) -> Iterator[Remedy]:
    """Of an engine that profiles the sampler for as many sequences as it may run."""
    if not find_engine(ground.request.engine).profiles_sequences:
        return
    value = 512
    while value >= 16:
        if value < (ground.request.max_num_seqs or 1024):
            text = f"at most {value} sequences a step"
            yield from _try(ground, "max_num_seqs", value, text)
        value //= 2


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
    if most and (asked is None or most < asked):
        yield from _try(ground, "context", most, f"a context of {most:,} tokens")


def _shorter_and(ground: Ground) -> Iterator[Remedy]:
    """Where no one change that costs little suffices: fewer sequences a step, and a shorter
    context."""
    if not find_engine(ground.request.engine).profiles_sequences:
        return
    for value in (512, 256, 128, 64, 32, 16):
        changed = replace(ground.request, max_num_seqs=value)
        size = ground.memory(changed)
        if size is None or size <= 0 or value >= (ground.request.max_num_seqs or 1024):
            continue
        plan = plan_model(ground.start.model, replace(changed, kv_memory=size))
        most = plan.limits.max_context
        if most and most >= _SHORTEST:
            text = f"at most {value} sequences a step and a context of {most:,} tokens"
            both = {"max_num_seqs": value, "context": most}
            yield Remedy(
                change="max_num_seqs and context",
                value=f"{value} and {most}",
                text=text,
                command=ground.command(**both),
                kv_tokens=plan.kv_tokens,
                concurrency=plan.pool.concurrency(plan.available, most),
            )


def _tp(ground: Ground) -> Iterator[Remedy]:
    for tp in valid_tp(ground.start.model.spec):
        if ground.request.tp < tp <= _MOST_TP:
            devices = tp * ground.request.pp
            yield from _try(ground, "tp", tp, f"tp {tp} ({devices} devices)")


def _weights(ground: Ground) -> Iterator[Remedy]:
    if "quantization_config" in ground.start.model.config:
        return
    for name in _WEIGHTS:
        if ground.request.dtype != name:
            yield from _try(ground, "dtype", name, f"weights of {name}")
