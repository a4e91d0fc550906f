"""What a search over devices found: a row for each device, the best first."""

from collections.abc import Iterable, Sequence

from headcount.report.report import Column, Table

from ..hardware.search import Candidate
from ..result import PlanResult

_COLUMNS = (
    Column("device", "Device"),
    Column("devices", "Devices", "count"),
    Column("split", "Split"),
    Column("verdict", "Verdict", "verdict"),
    Column("requests_at_once", "Requests at once", "count"),
    Column("max_context", "Largest context", "tokens"),
    Column("free_bytes", "Free on each", "bytes"),
    Column("total_memory", "Memory in all", "bytes"),
)
_PRICES = (Column("an_hour", "An hour", "price"), Column("a_month", "A month", "price"))


def hardware_table(result: PlanResult) -> Table:
    """The best of each device that was searched."""
    plan = result.plan
    users = result.users or plan.workload.batch_size
    what = f"{users:,} requests" if users > 1 else "a request"
    return Table(
        key="hardware",
        title=f"Hardware for {what} of {plan.workload.context:,} tokens at once",
        columns=hardware_columns(bool(result.prices)),
        rows=tuple(hardware_rows(result, result.of_each_device, with_prices=bool(result.prices))),
    )


def hardware_columns(with_prices: bool) -> tuple[Column, ...]:
    return (*_COLUMNS, *(_PRICES if with_prices else ()))


def hardware_rows(
    result: PlanResult, candidates: Sequence[Candidate], *, with_prices: bool
) -> Iterable[tuple[object, ...]]:
    """What does not fit has no number of requests, and what does not start no memory either."""
    for option in candidates:
        plan, starts = option.plan, option.verdict != "does not start"
        row = (
            option.device.key,
            option.devices,
            option.split,
            option.verdict,
            option.most_at_once if starts else None,
            plan.limits.max_context if starts else None,
            plan.free_bytes if starts else None,
            option.total_memory,
        )
        prices = (result.an_hour(option), result.a_month(option)) if with_prices else ()
        yield (*row, *prices)
