"""What serves where: on which devices, how many of them, and how a model is split over them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from math import ceil, inf
from typing import NamedTuple

from ..devices import Device
from ..engines.engine import find_engine
from ..parallel import valid_tp
from ..plan import Plan, Verdict, plan_model
from ..planned_model import PlannedModel
from ..request import PlanRequest

TP_CHOICES = (1, 2, 4, 8)  # devices of one machine
PP_CHOICES = (2, 3, 4, 8)
MOST_RANKS = 64


class Candidate(NamedTuple):
    """`plan` is that of one of `replicas` engines, each with weights of its own on tp x pp devices;
    its batch is the share of the users that one of them serves."""

    device: Device
    plan: Plan
    replicas: int = 1

    @property
    def tp(self) -> int:
        return self.plan.request.tp

    @property
    def pp(self) -> int:
        return self.plan.request.pp

    @property
    def devices(self) -> int:
        """Of all replicas."""
        return self.plan.request.ranks * self.replicas

    @property
    def cards(self) -> int:
        """What has to be bought, or rented, for them."""
        return ceil(self.devices / self.device.per_card)

    @property
    def total_memory(self) -> int:
        """Nominal bytes of all its cards."""
        return self.device.memory * self.device.per_card * self.cards

    @property
    def verdict(self) -> Verdict:
        found = self.plan.verdict
        assert found is not None  # there is a device
        return found

    @property
    def most_at_once(self) -> int | None:
        """Requests that run at once on all replicas; None where nothing sets a limit."""
        each = self.plan.limits.max_batch_size
        return None if each is None else each * self.replicas

    @property
    def split(self) -> str:
        """Such as `tp 8 x pp 2, 3 replicas`."""
        stages = f" x pp {self.pp}" if self.pp > 1 else ""
        if self.plan.request.dp > 1:
            stages += f" x dp {self.plan.request.dp}"
        experts = ", whole experts" if self.plan.request.enable_expert_parallel else ""
        engines = f", {self.replicas:,} replicas" if self.replicas > 1 else ""
        return f"tp {self.tp}{stages}{experts}{engines}"


class Placement(NamedTuple):
    """`asked` has the tp asked for on its device; `smallest` is that of the fewest devices from
    there on that suffice, None where not even the largest choice does."""

    asked: Candidate
    smallest: Candidate | None

    @property
    def device(self) -> Device:
        return self.asked.device

    @property
    def plan(self) -> Plan:
        return self.asked.plan


def search(
    model: PlannedModel, request: PlanRequest, devices: Iterable[Device], users: int | None = None
) -> tuple[Candidate, ...]:
    """Every device with the ways to split the model over some, in the devices' order: tp from
    `request.tp` to a whole machine, and pipelines of such machines, each length up to the first
    that serves alone, or the length that is asked for. For `users`, as many engines as serve all
    of them at once."""
    splits = tuple(_splits(model, request))
    return tuple(
        candidate
        for device in devices
        for tp, stages in splits
        for candidate in _lengths(model, replace(request, device=device, tp=tp), stages, users)
    )


def _splits(model: PlannedModel, request: PlanRequest) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Each tp with the lengths of pipelines to try at it."""
    valid, layers = valid_tp(model.spec), len(model.spec.layers)
    *smaller, most = (request.tp, *(n for n in TP_CHOICES if n > request.tp and n in valid))
    yield from ((tp, (request.pp,)) for tp in smaller)
    has_stages = request.pp == 1 and "pp" in find_engine(request.engine).options
    longer = [n for n in PP_CHOICES if n <= min(layers, MOST_RANKS // most)]
    yield most, (request.pp, *(longer if has_stages else ()))


def _lengths(
    model: PlannedModel, request: PlanRequest, stages: tuple[int, ...], users: int | None
) -> Iterator[Candidate]:
    for pp in stages:
        found = _that_starts(model, replace(request, pp=pp), users)
        yield found
        if found.replicas == 1 and found.verdict in ("fits", "does not start"):
            return


def _that_starts(model: PlannedModel, request: PlanRequest, users: int | None) -> Candidate:
    """With experts dealt to the ranks whole where they do not split."""
    found = _candidate(model, request, users)
    if not found.plan.refusals or request.tp == 1 or not found.plan.can_spread_experts:
        return found
    whole = _candidate(model, replace(request, enable_expert_parallel=True), users)
    return found if whole.plan.refusals else whole


def _candidate(model: PlannedModel, request: PlanRequest, users: int | None) -> Candidate:
    device = request.device
    assert device is not None
    if users is None:
        return Candidate(device=device, plan=_running_all(model, request))

    def serving(replicas: int) -> Plan:
        return _running_all(model, replace(request, batch_size=ceil(users / replicas)))

    alone = plan_model(model, replace(request, batch_size=1))
    replicas = _replicas(alone, users)
    if _runs_more_if_told(alone) and alone.low.limits.max_batch_size == alone.most_at_once:
        replicas = _fewest(lambda count: serving(count).verdict == "fits", replicas)
    return Candidate(device=device, plan=serving(replicas), replicas=replicas)


def _fewest(serves: Callable[[int], bool], most: int) -> int:
    """Of 1 to `most`, which are taken to serve. More serve where fewer do."""
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if serves(middle) else (middle + 1, high)
    return low


def _running_all(model: PlannedModel, request: PlanRequest) -> Plan:
    """The plan of a start that is told to run the whole batch at once, where by itself the engine
    runs fewer and that fits."""
    plan = plan_model(model, request)
    if plan.runs_at_once or not _runs_more_if_told(plan):
        return plan
    each = request.each_of_dp(request.batch_size)
    told = plan_model(model, replace(request, max_num_seqs=each))
    return told if told.verdict == "fits" else plan


def _runs_more_if_told(plan: Plan) -> bool:
    """Whether the most sequences that run at once are the engine's own choice."""
    has_option = "max_num_seqs" in plan.engine.options
    return has_option and plan.most_at_once is not None and plan.request.max_num_seqs is None


def _replicas(plan: Plan, users: int) -> int:
    """The fewest engines over which so many users can be spread evenly: by what each serves if the
    estimates err, or by the estimates where it would then serve none. 1 where it serves none."""
    context = plan.workload.context
    each = plan.low.largest_batch(context)
    each = plan.largest_batch(context) if each == 0 else each
    return ceil(users / each) if each and not plan.refusals else 1


Share = Callable[[Plan], float]  # how much of what is required a plan holds, 1 for all of it
Cost = Callable[[Candidate], float | None]  # None where the price is not known
_LACKS, _MAY_FIT, _FAILS, _NEVER = 1, 2, 3, 4


def ranked(found: Iterable[Candidate], share: Share, cost: Cost) -> tuple[Candidate, ...]:
    """What surely serves first, by cost where that is known and else by memory; then what fits but
    lacks something that is required, what may fit, and what does not, the nearest to it first."""

    def order(candidate: Candidate) -> tuple[float, ...]:
        plan, held, price = candidate.plan, share(candidate.plan), cost(candidate)
        rank = _rank(plan, held)
        if rank == _FAILS:
            return (rank, -(plan.free_bytes or 0))
        lacking = -held if rank == _LACKS else 0.0
        return (rank, lacking, inf if price is None else price, *_by_memory(candidate))

    return tuple(sorted(found, key=order))


def _rank(plan: Plan, held: float) -> int:
    if plan.verdict == "fits":
        return 0 if held >= 1 else _LACKS
    return {"borderline": _MAY_FIT, "does not fit": _FAILS}.get(plan.verdict or "", _NEVER)


def _by_memory(candidate: Candidate) -> tuple[float, ...]:
    """The least memory in all first; of as much, short pipelines before longer ones, and fewer
    engines, each of which holds the weights, before more."""
    return (candidate.total_memory, candidate.pp, candidate.replicas, candidate.tp)


def by_memory(found: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """The least memory in all first."""
    return tuple(sorted(found, key=_by_memory))


def of_each_device(found: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """The first of each device, in the order of `found`."""
    return tuple(options[0] for options in _by_device(found).values())


def placements(found: Sequence[Candidate]) -> Iterator[Placement]:
    """One per device, in their order; none where one alone was searched, since its row, with as
    many as were asked for, would be another answer than the plan with as many as suffice."""
    by_device = _by_device(found)
    for options in by_device.values() if len(by_device) > 1 else ():
        fitting = by_memory(option for option in options if option.plan.fits)
        yield Placement(asked=options[0], smallest=next(iter(fitting), None))


def _by_device(found: Iterable[Candidate]) -> dict[str, list[Candidate]]:
    by_device: dict[str, list[Candidate]] = {}
    for candidate in found:
        by_device.setdefault(candidate.device.key, []).append(candidate)
    return by_device
