"""What fits where: every device of the table, as many as asked for and the fewest that suffice."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from headcount.model.spec import ModelSpec

from .devices import Device
from .memory import Limits, MemoryPlan, plan_rank
from .parallel import valid_tp
from .weights import Weights

TP_CHOICES = (1, 2, 4, 8)  # devices of one machine


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """`plan` on this device; `smallest_tp` is None where not even the largest choice fits."""

    device: Device
    plan: MemoryPlan
    limits: Limits
    smallest_tp: int | None


def placements(
    spec: ModelSpec, weights: Weights, plan: MemoryPlan, devices: Iterable[Device]
) -> tuple[Placement, ...]:
    """One per device: `plan` with its own tp, and the smallest tp from there on that fits."""
    ranks = (
        plan.rank,
        *(plan_rank(spec, plan.workload, weights, tp) for tp in _more(spec, plan.rank.tp)),
    )
    larger = tuple(replace(plan, rank=rank) for rank in ranks)
    return tuple(_place(larger, device) for device in devices)


def _more(spec: ModelSpec, tp: int) -> tuple[int, ...]:
    valid = valid_tp(spec)
    return tuple(choice for choice in TP_CHOICES if choice > tp and choice in valid)


def _place(plans: tuple[MemoryPlan, ...], device: Device) -> Placement:
    here = tuple(replace(plan, device=device) for plan in plans)
    fitting = (plan.rank.tp for plan in here if plan.fits)
    limits = here[0].limits
    assert limits is not None  # it has a device
    return Placement(device=device, plan=here[0], limits=limits, smallest_tp=next(fitting, None))
