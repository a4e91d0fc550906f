"""What is known of a start that failed, and the plan of one that is changed.

The plan of a change begins from the least memory that the log's figures leave open, to which comes
what the change adds by our reckoning. A change whose plan does not fit is not offered.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from shlex import quote
from typing import Any

from headcount.model.errors import HeadcountError

from ..devices import parse_device
from ..plan import Plan, plan_model
from ..planned_model import PlannedModel
from ..request import PlanRequest
from ..stored import is_weighed
from .figures import reader_of
from .start import Start

_QUANTISED = "--quantization "  # of the engines whose logs name a method
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
    and `node_total` of a host that is the device, None likewise. `estimate` is the longest request
    by the engine's own account, which knows what the log rounds."""

    start: Start
    have: int | None
    rounding: int = 0
    free: int | None = None
    total: int | None = None
    node_total: int | None = None
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
        plan = self.plan_in(size, request)
        return plan if plan is not None and plan.fits else None

    def plan_in(self, size: int, request: PlanRequest | None = None) -> Plan | None:
        """The plan of `request`, or of the start, with `size` bytes for the cache; None where it
        cannot be told."""
        try:
            return plan_model(self.start.model, replace(request or self.request, kv_memory=size))
        except HeadcountError:
            return None

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


def tried(ground: Ground, changed: Mapping[str, Any], text: str) -> Iterator[Remedy]:
    """The start with all that is `changed`, where it fits. None where the engine's command cannot
    say it: that would start something else."""
    if (plan := ground.plan(**changed)) is None:
        return
    command = ground.command(**changed)
    if command is None or command == ground.command():
        return
    yield Remedy(
        change=" and ".join(changed),
        value=next(iter(changed.values())) if len(changed) == 1 else joined(changed.values()),
        text=text,
        command=command,
        kv_tokens=plan.kv_tokens,
        concurrency=plan.concurrency,
    )


def joined(values: Iterable[Any]) -> str:
    return " and ".join(str(value) for value in values)
