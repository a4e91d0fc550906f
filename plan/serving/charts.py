"""A plan for an engine as charts."""

from collections.abc import Iterator, Sequence

from headcount.report.report import Chart, Series

from ..charts import layer_chart, memory_chart
from .curves import Point, batch_curve
from .planning import ServingPlan


def engine_charts(plan: ServingPlan, points: Sequence[Point]) -> Iterator[Chart]:
    """Memory by context, how many requests fit, and what each layer keeps."""
    places = [point.context for point in points]
    batch = plan.workload.batch_size
    terms = (
        {}
        if plan.budget is None
        else {term.title: [term.bytes] * len(places) for term in plan.budget.taken}
    )
    terms["KV cache"] = [point.request_bytes * batch for point in points]
    memory = memory_chart(places, terms, plan.request.device, plan.share or 0.9)
    if plan.request.kv_memory is not None:
        memory = memory._replace(limits=(("given K/V memory", plan.request.kv_memory / 2**30),))
    yield memory
    yield Chart(
        key="requests",
        title="Requests at once by context",
        kind="line",
        x_title="context, tokens",
        y_title="requests",
        places=tuple(places),
        series=(Series("requests that fit", tuple(point.concurrency for point in points)),),
        x_is_log=True,
    )
    yield from _batch_chart(plan)
    yield from layer_chart(plan.subject.spec, plan.workload)


def _batch_chart(plan: ServingPlan) -> Iterator[Chart]:
    """The cache of so many requests under what is left for it."""
    points = batch_curve(plan)
    if len(points) < 2:
        return
    yield Chart(
        key="batch",
        title=f"Cache by requests at once, {plan.workload.context:,} tokens each",
        kind="line",
        x_title="requests at once",
        y_title="GiB of each device",
        places=tuple(point.batch_size for point in points),
        series=(Series("KV cache", tuple(point.cache_bytes / 2**30 for point in points)),),
        limits=(("available for the cache", plan.available_bytes / 2**30),),
        x_is_log=True,
    )
