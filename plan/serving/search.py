"""Which devices, and how many of them, serve so many users at a context."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ..devices import Device
from ..parallel import valid_tp
from ..placement import TP_CHOICES
from .launch import launch_command
from .planning import ServingPlan, plan_serving
from .request import ServingRequest, Subject


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """`tp` of one kind of device."""

    device: Device
    plan: ServingPlan

    @property
    def tp(self) -> int:
        return self.plan.request.tp

    @property
    def total_memory(self) -> int:
        """Nominal bytes of all its devices."""
        return self.device.memory * self.tp * self.plan.request.pp

    def document(self) -> dict[str, object]:
        plan = self.plan
        return {
            "device": self.device.key,
            "tp": self.tp,
            "total_memory": self.total_memory,
            "fits": plan.fits,
            "available_kv_bytes": plan.available_bytes,
            "kv_tokens": plan.kv_tokens,
            "concurrency": round(plan.concurrency, 2),
            "max_context": plan.max_context,
            "launch_command": launch_command(plan),
        }


def options(
    subject: Subject, request: ServingRequest, devices: Iterable[Device]
) -> tuple[Option, ...]:
    """Every device with `request.tp` and each larger choice, the least memory in all first."""
    valid = valid_tp(subject.spec)
    choices = sorted({request.tp, *(tp for tp in TP_CHOICES if tp > request.tp and tp in valid)})
    found = [
        Option(device=device, plan=plan_serving(subject, replace(request, device=device, tp=tp)))
        for device in devices
        for tp in choices
    ]
    return tuple(sorted(found, key=lambda option: (option.total_memory, option.tp)))


def smallest(found: Sequence[Option]) -> tuple[Option, ...]:
    """Of each device the fewest that serve the batch, the least memory in all first."""
    best: dict[str, Option] = {}
    for option in found:
        if option.plan.fits:
            best.setdefault(option.device.key, option)
    return tuple(best.values())
