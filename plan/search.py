"""What fits where: which devices, and how many of them, serve a request."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from .devices import Device
from .parallel import valid_tp
from .plan import Plan, plan_model
from .planned_model import PlannedModel
from .request import PlanRequest

TP_CHOICES = (1, 2, 4, 8)  # devices of one machine


class Candidate(NamedTuple):
    """The plan on so many of one kind of device."""

    device: Device
    plan: Plan

    @property
    def tp(self) -> int:
        return self.plan.request.tp

    @property
    def total_memory(self) -> int:
        """Nominal bytes of all its devices."""
        return self.device.memory * self.plan.request.ranks


class Placement(NamedTuple):
    """`plan` with the tp asked for on this device; `smallest_tp` is the fewest from there on that
    suffice, None where not even the largest choice does."""

    device: Device
    plan: Plan
    smallest_tp: int | None


def search(
    model: PlannedModel, request: PlanRequest, devices: Iterable[Device]
) -> tuple[Candidate, ...]:
    """Every device with `request.tp` and each larger choice, in the devices' order."""
    valid = valid_tp(model.spec)
    choices = sorted({request.tp, *(tp for tp in TP_CHOICES if tp > request.tp and tp in valid)})
    return tuple(
        Candidate(device=device, plan=plan_model(model, replace(request, device=device, tp=tp)))
        for device in devices
        for tp in choices
    )


def placements(found: Sequence[Candidate]) -> Iterator[Placement]:
    """One per device, in their order; none where one alone was searched, since its row, with as
    many as were asked for, would be another answer than the plan with as many as suffice."""
    by_device: dict[str, list[Plan]] = {}
    for candidate in found:
        by_device.setdefault(candidate.device.key, []).append(candidate.plan)
    for plans in by_device.values() if len(by_device) > 1 else ():
        device, fitting = plans[0].request.device, (p.request.tp for p in plans if p.fits)
        assert device is not None
        yield Placement(device=device, plan=plans[0], smallest_tp=next(fitting, None))


def by_memory(found: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """The least memory in all first."""
    return tuple(sorted(found, key=lambda candidate: (candidate.total_memory, candidate.tp)))


def smallest(found: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Of each device the fewest that suffice, the least memory in all first."""
    best: dict[str, Candidate] = {}
    for candidate in by_memory(found):
        if candidate.plan.fits:
            best.setdefault(candidate.device.key, candidate)
    return tuple(best.values())
