"""The answer to a request: the plan that is shown, what it was chosen from, and what would change
it. Each part is worked out when it is asked for."""

from dataclasses import dataclass, replace
from functools import cached_property

from headcount.model.errors import HeadcountError

from .changes import Change, changes
from .curves import ContextPoint, context_curve
from .devices import all_devices
from .gate import Held, Requirement, check
from .plan import Plan, plan_model
from .planned_model import PlannedModel
from .request import PlanRequest
from .search import Candidate, by_memory, search
from .what_if import VariantPlan, variant_plans


@dataclass(frozen=True, kw_only=True)
class PlanResult:
    """`candidates` are what a search was made over, () where none was."""

    plan: Plan
    candidates: tuple[Candidate, ...]
    requirements: tuple[Held, ...]

    @property
    def holds(self) -> bool:
        """Whether all that was required holds."""
        return all(item.holds for item in self.requirements)

    @cached_property
    def variants(self) -> tuple[VariantPlan, ...]:
        return variant_plans(self.plan)

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        return changes(self.plan, self.variants)

    @cached_property
    def curve(self) -> tuple[ContextPoint, ...]:
        return context_curve(self.plan)


def plan_result(
    model: PlannedModel,
    request: PlanRequest,
    *,
    requirements: tuple[Requirement, ...] = (),
    target_users: int | None = None,
) -> PlanResult:
    """Plans `request`, or searches where no device is named or users are given: then the plan is
    that of the least memory that serves and holds what is required. Raises HeadcountError."""
    if target_users is not None:
        request = replace(request, batch_size=target_users)
    if not (target_users or (request.device is None and request.kv_memory is None)):
        return _result(plan_model(model, request), requirements)
    if request.kv_memory is not None:
        raise HeadcountError("--target-users searches devices: leave out --kv-memory")
    devices = all_devices() if request.device is None else (request.device,)
    found = search(model, request, devices)
    best = max(by_memory(found), key=lambda option: _merit(option.plan, requirements)).plan
    if best.engine.starts:
        return _result(best, requirements, found)
    shown = plan_model(model, request)  # what it needs is the same on every device
    return replace(_result(best, requirements, found), plan=shown)


def _merit(plan: Plan, requirements: tuple[Requirement, ...]) -> tuple[bool, bool, bool]:
    fits, holds = bool(plan.fits), all(item.holds for item in check(plan, requirements))
    return fits and holds, holds, fits


def _result(
    plan: Plan, requirements: tuple[Requirement, ...], found: tuple[Candidate, ...] = ()
) -> PlanResult:
    return PlanResult(plan=plan, candidates=found, requirements=check(plan, requirements))
