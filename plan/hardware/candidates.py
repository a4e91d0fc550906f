"""What a search offers: devices with a plan for each, and the order of what serves best."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import ceil, inf
from typing import NamedTuple

from ..devices import Device
from ..plan import Plan, Verdict

MACHINE = 8  # devices of one server, as most are built


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

    @property
    def may_serve(self) -> tuple[float, float]:
        """How many requests each of its engines serves at once if the estimates err against it, and
        if in its favour."""
        return self.plan.low.at_once, self.plan.high.at_once


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


Share = Callable[[Plan], float]  # how much of what is required a plan holds, 1 for all of it
Cost = Callable[[Candidate], float | None]  # None where the price is not known
_FASTER = 1.25  # what a device of the same memory has to be to be told of beside the best
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


def of_each_split(found: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """The first of each device and tp, in the order of `found`."""
    firsts: dict[tuple[str, int], Candidate] = {}
    for candidate in found:
        firsts.setdefault((candidate.device.key, candidate.tp), candidate)
    return tuple(firsts.values())


def telling(found: Sequence[Candidate]) -> tuple[int, ...]:
    """The places of a long list's candidates, those that tell most first: the best; of each amount
    of memory that suffices, as so many devices of a size, the fastest; then the others."""
    sizes: dict[tuple[int, int], list[int]] = {}
    for at, candidate in enumerate(found):
        if candidate.plan.fits:
            sizes.setdefault((candidate.devices, candidate.device.memory), []).append(at)
    fastest = [min(places, key=lambda at: _slowness(found[at])) for places in sizes.values()]
    if fastest and _is_near(found[fastest[0]], found[0]):
        del fastest[0]
    return tuple(dict.fromkeys((*range(min(len(found), 1)), *fastest, *range(len(found)))))


def _is_near(fastest: Candidate, best: Candidate) -> bool:
    return (fastest.device.bandwidth or 0) < _FASTER * (best.device.bandwidth or 0)


def _slowness(candidate: Candidate) -> tuple[float, float, str]:
    device = candidate.device
    return -(device.bandwidth or 0), -(device.flops or 0), device.key


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
