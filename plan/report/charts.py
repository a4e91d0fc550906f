"""A plan as charts: memory against context by term, requests at once, and what each layer keeps."""

from collections.abc import Iterator, Mapping

from headcount.report.report import Chart, Series

from ..curves import batch_curve, contexts
from ..devices import find_device
from ..plan import Plan
from ..result import PlanResult

_GIB = 2**30
_SHOWN = ("rtx-4090", "a100-40gb", "l40s", "h100", "h200", "b200")


def plan_charts(result: PlanResult) -> tuple[Chart, ...]:
    """Those that the plan's engine can tell."""
    plan = result.plan
    requests = (_requests_chart(result), *_batch_chart(plan)) if plan.engine.starts else ()
    return (_memory_chart(plan), *requests, *_layer_chart(plan))


def _memory_chart(plan: Plan) -> Chart:
    """Terms stacked, in GiB of one device, with what devices allow across them."""
    places = contexts(plan.spec, plan.workload.context)
    terms = _terms(plan, places)
    top = max(sum(values) for values in zip(*terms.values(), strict=True))
    given = plan.request.kv_memory
    return Chart(
        key="memory",
        title="Memory of each device by context",
        kind="area",
        x_title="context, tokens",
        y_title="GiB",
        places=places,
        series=tuple(
            Series(name, tuple(value / _GIB for value in values)) for name, values in terms.items()
        ),
        limits=tuple(_capacity(plan, top))
        if given is None
        else (("given K/V memory", given / _GIB),),
        x_is_log=True,
    )


def _terms(plan: Plan, places: tuple[int, ...]) -> Mapping[str, list[int]]:
    batch, budget = plan.workload.batch_size, plan.budget
    taken = [budget.taken(place, batch) if budget else () for place in places]
    terms = {term.title: [row[n].bytes for row in taken] for n, term in enumerate(taken[0])}
    cache = [plan.needed(place, batch) for place in places]
    return {name: terms.get(name, cache) for name in ("Weights", "KV cache", *terms)}


def _capacity(plan: Plan, top: int) -> Iterator[tuple[str, float]]:
    """What the plan's device allows, or else some that people have, if they are near."""
    asked, utilisation = plan.request.device, plan.utilisation or 0.9
    for device in [asked] if asked else [find_device(name) for name in _SHOWN]:
        allowed = device.usable_memory * utilisation
        if asked or allowed < 1.5 * top:
            yield f"{device.key}, {utilisation:g}", allowed / _GIB


def _requests_chart(result: PlanResult) -> Chart:
    fitting = tuple(point.concurrency for point in result.curve)
    return Chart(
        key="requests",
        title="Concurrency by context",
        kind="line",
        x_title="context, tokens",
        y_title="concurrency",
        places=tuple(point.context for point in result.curve),
        series=(Series("requests that fit", fitting),),
        x_is_log=True,
    )


def _batch_chart(plan: Plan) -> Iterator[Chart]:
    """The cache of so many requests under what is left for it."""
    points = tuple(batch_curve(plan))
    if len(points) < 2:
        return
    yield Chart(
        key="batch",
        title=f"Cache by concurrency, {plan.workload.context:,} tokens each",
        kind="line",
        x_title="concurrency",
        y_title="GiB of each device",
        places=tuple(point.batch_size for point in points),
        series=(Series("KV cache", tuple(point.cache_bytes / _GIB for point in points)),),
        limits=(("available for the cache", plan.available_bytes / _GIB),),
        x_is_log=True,
    )


def _layer_chart(plan: Plan) -> Iterator[Chart]:
    """What one sequence keeps in each layer, over all devices; nothing where nothing is kept."""
    work = plan.workload
    layers = [layer for layer in plan.spec.layers if layer.stack != "encoder"]
    kinds: dict[str, list[float]] = {}
    for place, layer in enumerate(layers):
        for mixer in layer.mixers:
            name = mixer.kind.replace("_", " ") + (", window" if mixer.window else "")
            kept = mixer.state_bytes(work.context, work.encoder_tokens, work.kv_bits, "serving")
            kinds.setdefault(name, [0.0] * len(layers))[place] += kept / 2**20
    if any(any(values) for values in kinds.values()):
        yield Chart(
            key="layers",
            title=f"Cache of each layer at {work.context:,} tokens",
            kind="bar",
            x_title="layer",
            y_title="MiB",
            places=tuple(layer.index for layer in layers),
            series=tuple(Series(name, tuple(values)) for name, values in kinds.items()),
        )
