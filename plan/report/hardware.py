"""What a search over devices found: a row for each device, the best first."""

from collections.abc import Iterable, Sequence

from headcount.report.report import Column, Table

from ..decode import decode_rate
from ..hardware.search import Candidate
from ..result import PlanResult

_CHOICE = (
    Column("device", "Device"),
    Column("devices", "Devices", "count"),
    Column("verdict", "Verdict", "verdict"),
)
_PRICES = (Column("an_hour", "An hour", "price"), Column("a_month", "A month", "price"))
_HOW = (
    Column("split", "Split"),
    Column("most_at_once", "Requests at once", "count"),
    Column("max_context", "Largest context", "tokens"),
    Column("free_bytes", "Free on each", "bytes"),
    Column("total_memory", "Memory in all", "bytes"),
    Column("decode_tokens_per_second", "Tokens/s at most", "rate"),
)


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
    return (*_CHOICE, *(_PRICES if with_prices else ()), *_HOW)


def hardware_rows(
    result: PlanResult, candidates: Sequence[Candidate], *, with_prices: bool
) -> Iterable[tuple[object, ...]]:
    """What does not start has no figures."""
    for option in candidates:
        plan = option.plan
        figures = (option.most_at_once, plan.limits.max_context, plan.free_bytes)
        yield (
            *(option.device.key, option.devices, option.verdict),
            *((result.an_hour(option), result.a_month(option)) if with_prices else ()),
            option.split,
            *((None,) * len(figures) if plan.refusals else figures),
            option.total_memory,
            decode_rate(plan) if plan.fits else None,
        )
