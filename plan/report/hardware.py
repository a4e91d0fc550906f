"""What a search over devices found: a row for each device, the best first."""

from collections.abc import Iterable, Sequence
from math import floor, isfinite

from headcount.report.report import Column, Table

from ..decode import decode_rate
from ..hardware.candidates import Candidate, telling
from ..result import PlanResult

NAMING = "--device h100"
_BRIEF_ROWS = 5
_CHOICE = (
    Column("device", "Device"),
    Column("devices", "Devices", "count"),
    Column("verdict", "Verdict", "verdict"),
)
_PRICES = (Column("an_hour", "An hour", "price"), Column("a_month", "A month", "price", drop=4))
_HOW = (
    Column("split", "Split"),
    Column("max_concurrency", "Concurrency", "count", drop=1),
    Column("max_context", "Largest context", "tokens", drop=5),
    Column("free_bytes", "Free on each", "bytes", drop=6),
    Column("total_memory", "Memory in all", "bytes", drop=7),
    Column("decode_tokens_per_second", "Tokens/s at most", "rate", drop=2),
    Column("perhaps", "Or borderline", drop=3),
)


def hardware_table(result: PlanResult) -> Table:
    """The best of each device that was searched."""
    plan = result.plan
    users = result.users or plan.workload.batch_size
    what = f"{users:,} requests" if users > 1 else "a request"
    table = Table(
        key="hardware",
        title=f"Hardware for {what} of {plan.workload.context:,} tokens at once{tried(result)}",
        columns=hardware_columns(bool(result.prices)),
        rows=tuple(hardware_rows(result, result.of_each_device)),
        brief=None if result.named else _BRIEF_ROWS,
        least=_BRIEF_ROWS,
        telling=() if result.prices else telling(result.of_each_device),
        asked_for="" if result.named else NAMING,
    )
    return without_empty_end(table)


def tried(result: PlanResult) -> str:
    """Which tp a search was over, where that was asked for."""
    if result.tps:
        *first, last = map(str, result.tps)
        return f", tp {', '.join(first)} or {last}"
    return f", tp {result.least_tp} or more" if result.least_tp > 1 else ""


def without_empty_end(table: Table) -> Table:
    """Without its last column where no row has anything in it."""
    if any(row[-1] is not None for row in table.rows):
        return table
    rows = tuple(row[:-1] for row in table.rows)
    return table._replace(columns=table.columns[:-1], rows=rows)


def hardware_columns(with_prices: bool) -> tuple[Column, ...]:
    return (*_CHOICE, *price_columns(with_prices), *_HOW)


def price_columns(with_prices: bool) -> tuple[Column, ...]:
    return _PRICES if with_prices else ()


def price_cells(result: PlanResult, option: Candidate | None) -> tuple[float | None, ...]:
    """What `option` costs; () where no prices were given."""
    if not result.prices:
        return ()
    return (result.an_hour(option), result.a_month(option)) if option else (None, None)


def hardware_rows(
    result: PlanResult, candidates: Sequence[Candidate]
) -> Iterable[tuple[object, ...]]:
    """What does not start has no figures."""
    for option in candidates:
        plan, fewer = option.plan, result.perhaps_instead(option)
        figures = (option.most_at_once, plan.limits.max_context, plan.free_bytes)
        yield (
            *(option.device.key, option.devices, option.verdict),
            *price_cells(result, option),
            option.split,
            *((None,) * len(figures) if plan.refusals else figures),
            option.total_memory,
            decode_rate(plan) if plan.fits else None,
            fewer and f"{fewer.devices:,}: {may_serve(fewer)}",
        )


def hundredths(value: float, wanted: int) -> float:
    """Rounded as engines log it, but not up to what is wanted: 19.998 of 20 are not 20.00."""
    if not isfinite(value):
        return value
    rounded = round(value, 2)
    return rounded if (rounded >= wanted) == (value >= wanted) else floor(100 * value) / 100


def may_serve(option: Candidate, what: str = "") -> str:
    """How many of its requests, called `what`, something borderline serves at once."""
    wanted = option.plan.workload.batch_size
    low, high = (f"{hundredths(end, wanted):,.2f}" for end in option.may_serve)
    each = " each" if option.replicas > 1 else ""
    return f"{low} to {high} of {wanted:,}{what}{each}"
