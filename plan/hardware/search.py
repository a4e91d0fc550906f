"""What serves where: on which devices, how many of them, and how a model is split over them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from ..devices import Device
from ..engines.engine import find_engine
from ..parallel import valid_tp
from ..plan import Plan, plan_model
from ..planned_model import PlannedModel
from ..request import PlanRequest
from .candidates import MACHINE, Candidate

TP_CHOICES = (1, 2, 4, MACHINE)
PP_CHOICES = (2, 3, 4, 8)
MOST_RANKS = 64


def search(
    model: PlannedModel,
    request: PlanRequest,
    devices: Iterable[Device],
    users: int | None = None,
    tps: tuple[int, ...] = (),
) -> tuple[Candidate, ...]:
    """Every device with the ways to split the model over some, in the devices' order: tp from
    `request.tp` to a whole machine, and pipelines of such machines, each length up to the first
    that serves alone, or the length that is asked for. For `users`, as many engines as surely serve
    all of them at once, and behind them the fewer that may. Of `tps` each and no other."""
    splits: list[tuple[int, tuple[int, ...]]] = [(tp, (request.pp,)) for tp in tps]
    splits = splits or list(_splits(model, request))
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
        found, *fewer = _that_start(model, replace(request, pp=pp), users)
        yield from (found, *fewer)
        if found.replicas == 1 and found.verdict in ("fits", "does not start"):
            return


def _that_start(
    model: PlannedModel, request: PlanRequest, users: int | None
) -> tuple[Candidate, ...]:
    """With experts dealt to the ranks whole where they do not split."""
    found = tuple(_candidates(model, request, users))
    plan = found[0].plan
    if not plan.refusals or request.tp == 1 or not plan.can_spread_experts:
        return found
    whole = tuple(_candidates(model, replace(request, enable_expert_parallel=True), users))
    return found if whole[0].plan.refusals else whole


def _candidates(
    model: PlannedModel, request: PlanRequest, users: int | None
) -> Iterator[Candidate]:
    """As many engines as surely serve, then the fewest that may where those are fewer."""
    device = request.device
    assert device is not None
    if users is None:
        yield Candidate(device=device, plan=_running_all(model, request))
        return

    def serving(replicas: int) -> Plan:
        return _running_all(model, replace(request, batch_size=-(-users // replicas)))

    alone = plan_model(model, replace(request, batch_size=1))
    replicas = _replicas(alone, users)
    if _runs_more_if_told(alone) and alone.low.limits.max_batch_size == alone.most_at_once:
        replicas = _fewest(lambda count: serving(count).verdict == "fits", replicas)
    sure = Candidate(device=device, plan=serving(replicas), replicas=replicas)
    yield sure
    if replicas == 1 or sure.verdict != "fits":
        return
    fewer = _fewest_if_estimates_favour(alone, users)
    if fewer < replicas and serving(fewer).verdict == "borderline":
        yield Candidate(device=device, plan=serving(fewer), replicas=fewer)


def _fewest_if_estimates_favour(plan: Plan, users: int) -> int:
    """The fewest engines that may serve so many users."""
    each = plan.high.largest_batch(plan.workload.context)
    return -(-users // each) if each else users


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
    batch, shared = request.batch_size, request.enable_dp_attention
    most = batch if shared else request.each_of_dp(batch)
    told = plan_model(model, replace(request, max_num_seqs=most))
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
    return -(-users // each) if each and not plan.refusals else 1
