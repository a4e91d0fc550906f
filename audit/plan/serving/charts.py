"""A plan for an engine as charts."""

from collections.abc import Iterator, Sequence

from ...report import Chart, Series
from ..charts import layer_chart, memory_chart
from .curves import Point
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
    yield from layer_chart(plan.subject.spec, plan.workload)
