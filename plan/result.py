"""The answer to a request: the plan that is shown, what it was chosen from, and what would change
it. Each part is worked out when it is asked for."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING

from headcount.model.errors import HeadcountError
from headcount.model.pruned_heads import PrunedShare
from headcount.model.units import format_bytes

from .devices import Device, all_devices
from .engines.engine import find_engine
from .hardware.candidates import Candidate, of_each_device, of_each_split, ranked
from .hardware.cost import HOURS_A_MONTH, Prices, cost
from .plan import Plan, plan_model
from .planned_model import PlannedModel
from .request import PlanRequest
from .what_if.rows import VariantPlan, variant_plans

if TYPE_CHECKING:
    from .changes import Change
    from .curves import ContextPoint
    from .gate import Held, Requirement


@dataclass(frozen=True, kw_only=True)
class PlanResult:
    """`candidates` are what a search was made over, in the devices' order, () where none was, and
    `ranking` the same, the best first; `users` whom all engines of one are to serve at once;
    `named` whether the devices to search were named, `least_tp` from which tp on, or `tps` which
    alone were tried, and `left_out` those of the table that the
    engine does not run on, with the reason."""

    plan: Plan
    candidates: tuple[Candidate, ...] = ()
    ranking: tuple[Candidate, ...] = ()
    required: "tuple[Requirement, ...]" = ()
    users: int | None = None
    named: bool = False
    least_tp: int = 1
    tps: tuple[int, ...] = ()
    left_out: tuple[tuple[Device, str], ...] = ()
    prices: Prices = field(default_factory=dict)
    pruned: PrunedShare | None = None  # query heads, of which one more what-if row is without

    @property
    def chosen(self) -> Candidate | None:
        """The best of a search, whether or not it serves; None where none was made."""
        return self.ranking[0] if self.ranking else None

    @property
    def shown(self) -> Candidate | None:
        """The best of a search, or the one plan on its device; None without a device."""
        device = self.plan.request.device
        return self.chosen or (Candidate(device=device, plan=self.plan) if device else None)

    @cached_property
    def requirements(self) -> "tuple[Held, ...]":
        """Each, held against the plan, or the best of a search."""
        return _held(self.chosen.plan if self.chosen else self.plan, self.required)

    @cached_property
    def offered(self) -> tuple[Candidate, ...]:
        """Of each device the best that surely serves and holds what is required, the best first."""
        return tuple(
            option
            for option in self.of_each_device
            if option.verdict == "fits" and _share(option.plan, self.required) >= 1
        )

    @cached_property
    def perhaps(self) -> Candidate | None:
        """What is borderline and costs less than what surely serves, or has less memory where no
        prices are known: the least of it."""
        sure = self.chosen
        if sure is None or sure.verdict != "fits" or not self.holds:
            return None
        return next((one for one in self._borderline if self._price(one) < self._price(sure)), None)

    def perhaps_instead(self, sure: Candidate) -> Candidate | None:
        """The fewest cards of the same device that are borderline, where those are fewer."""
        if sure.verdict != "fits":
            return None
        fewer = (
            one for one in self._borderline if one.device == sure.device and one.cards < sure.cards
        )
        return min(fewer, key=lambda one: one.cards, default=None)

    @cached_property
    def _borderline(self) -> tuple[Candidate, ...]:
        """Which may serve, and hold what is required."""
        found = tuple(option for option in self.ranking if option.verdict == "borderline")
        if not self.required:
            return found
        from .gate import may_hold

        return tuple(option for option in found if may_hold(option.plan, self.required))

    def _price(self, candidate: Candidate) -> tuple[float, int]:
        price = self.an_hour(candidate)
        return inf if price is None else price, candidate.total_memory

    @property
    def holds(self) -> bool:
        """Whether all that was required holds, and all users are surely served."""
        return not self.failures

    @property
    def failures(self) -> tuple[str, ...]:
        """Each requirement that does not hold, and why."""
        return tuple(self._failures())

    def _failures(self) -> Iterator[str]:
        chosen, where = self.chosen, ""
        if chosen is not None:
            tried = ", the nearest to it" if len(self.ranking) > 1 else ""
            where = f" on {chosen.devices:,} x {chosen.device.key} ({chosen.split}){tried}"
        if chosen is not None and self.users is not None and chosen.verdict != "fits":
            yield f"{self.users:,} requests at once: {shortfall(chosen.plan)}{where}"
        for item in self.requirements:
            if not item.holds:
                why = "; ".join(self.plan.refusals) or item.text
                yield f"{item.requirement.text}: {why}{where}"

    def an_hour(self, candidate: Candidate) -> float | None:
        """What all its cards cost; None where their price is not known."""
        return cost(candidate, self.prices)

    def a_month(self, candidate: Candidate) -> float | None:
        price = self.an_hour(candidate)
        return None if price is None else price * HOURS_A_MONTH

    @cached_property
    def of_each_device(self) -> tuple[Candidate, ...]:
        """The best of each device that was searched, the best first; with several tp and devices
        named, of each tp on it."""
        if self.tps and self.named:
            return of_each_split(self.ranking)
        return of_each_device(self.ranking)

    @cached_property
    def variants(self) -> tuple[VariantPlan, ...]:
        return variant_plans(self.plan, self.pruned)

    @cached_property
    def changes(self) -> "tuple[Change, ...]":
        if self.plan.verdict == "fits":
            return ()
        from .changes import changes

        return changes(self.plan, self.variants)

    @cached_property
    def curve(self) -> "tuple[ContextPoint, ...]":
        from .curves import context_curve

        return context_curve(self.plan)


def _held(plan: Plan, required: "tuple[Requirement, ...]") -> "tuple[Held, ...]":
    if not required:
        return ()
    from .gate import check

    return check(plan, required)


def _share(plan: Plan, required: "tuple[Requirement, ...]") -> float:
    """How much of what is required is there: that of what it lacks most, 1 where all holds."""
    return min((item.share for item in _held(plan, required)), default=1.0)


def shortfall(plan: Plan) -> str:
    """Why it does not surely serve."""
    if plan.refusals:
        return "; ".join(plan.refusals)
    if (loading := plan.loading) is not None and not plan.loads:
        return f"{format_bytes(-loading.free_bytes)} short on each device while the weights load"
    free = plan.free_bytes or 0
    left = f"{format_bytes(abs(free))} {'free' if free >= 0 else 'short'} on each device"
    if plan.verdict == "borderline":
        return f"borderline, {left}, within {format_bytes(plan.error_bytes)}"
    return left


def plan_result(
    model: PlannedModel,
    request: PlanRequest,
    *,
    requirements: "tuple[Requirement, ...]" = (),
    target_users: int | None = None,
    devices: Sequence[Device] = (),
    prices: Prices | None = None,
    tps: tuple[int, ...] = (),
) -> PlanResult:
    """Plans `request`, or searches `devices` (none: the whole table) where not one is named, or
    users are given: then the plan is that of the least memory, or cost, that serves and holds what
    is required. So it does of several `tps`, which are tried alone. Raises HeadcountError."""
    known, named = prices or {}, tuple(devices) or ((request.device,) if request.device else ())
    if len(named) == 1:
        request = replace(request, device=named[0])
    if request.kv_memory is not None:
        _check_beside_kv_memory(request, bool(target_users or tps) or len(named) > 1, known)
    if not (target_users or tps) and (len(named) == 1 or request.kv_memory is not None):
        plan = plan_model(model, request)
        return PlanResult(plan=plan, required=requirements, prices=known)
    from .hardware.search import search  # one plan wants none

    left_out = () if named else tuple(_left_out(request))
    searched = named or _without(left_out)
    found = search(model, request, searched, target_users, tps)
    ranking = ranked(
        found,
        share=lambda plan: _share(plan, requirements),
        cost=lambda candidate: cost(candidate, known),
    )
    best = ranking[0].plan
    return PlanResult(
        # Without an engine what it needs is the same on every device.
        plan=best if best.engine.starts else plan_model(model, replace(request, device=None)),
        candidates=found,
        ranking=ranking,
        required=requirements,
        users=target_users,
        named=bool(named),
        least_tp=request.tp,
        tps=tps,
        left_out=left_out,
        prices=known,
    )


def _check_beside_kv_memory(request: PlanRequest, is_search: bool, prices: Prices) -> None:
    if is_search:
        raise HeadcountError(
            "--target-users, or several devices or --tp, are a search over devices: leave out"
            " --kv-memory"
        )
    if prices:
        raise HeadcountError("--prices are those of devices: leave out --kv-memory")
    if request.utilisation is not None:
        raise HeadcountError(
            "--kv-memory is all that the cache has, and --utilisation what it is reckoned from:"
            " leave out one of them"
        )


def _left_out(request: PlanRequest) -> Iterator[tuple[Device, str]]:
    engine = find_engine(request.engine)
    version = request.version or engine.releases.latest()
    for device in all_devices():
        reason = engine.not_run_on(device, version)
        if reason is not None:
            yield device, reason


def _without(left_out: tuple[tuple[Device, str], ...]) -> tuple[Device, ...]:
    keys = {device.key for device, _ in left_out}
    return tuple(device for device in all_devices() if device.key not in keys)
