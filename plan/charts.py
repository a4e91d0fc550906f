"""A plan as charts: memory against context by term, and what each layer keeps."""

from collections.abc import Iterator, Mapping, Sequence

from headcount.model.spec import ModelSpec
from headcount.report.report import Chart, Series

from .devices import Device, find_device
from .planning import ModelPlan
from .request import Workload

_GIB = 2**30
_SHOWN = ("rtx-4090", "a100-40gb", "l40s", "h100", "h200", "b200")
_SHORTEST, _MOST = 1024, 14


def plan_charts(plan: ModelPlan) -> tuple[Chart, ...]:
    """Of a plan without an engine."""
    places = contexts(plan.spec, plan.workload.context)
    rows = [plan.memory.rank.terms(tokens, plan.workload.batch_size) for tokens in places]
    terms = {term.title: [row[index].bytes for row in rows] for index, term in enumerate(rows[0])}
    memory = memory_chart(places, terms, plan.request.device, plan.request.utilisation)
    return (memory, *layer_chart(plan.spec, plan.workload))


def contexts(spec: ModelSpec, asked: int) -> tuple[int, ...]:
    """From 1,024 on, each twice the one before, to the model's maximum or what is asked for."""
    most = max(spec.max_position_embeddings or 0, asked)
    found = [min(_SHORTEST, most)]
    while found[-1] * 2 < most and len(found) < _MOST:
        found.append(found[-1] * 2)
    return tuple(dict.fromkeys((*found, most)))


def memory_chart(
    places: Sequence[int],
    terms: Mapping[str, Sequence[int]],
    device: Device | None,
    utilisation: float,
) -> Chart:
    """Terms stacked, in GiB of one device, with what devices allow across them."""
    top = max(sum(values) for values in zip(*terms.values(), strict=True))
    return Chart(
        key="memory",
        title="Memory of each device by context",
        kind="area",
        x_title="context, tokens",
        y_title="GiB",
        places=tuple(places),
        series=tuple(
            Series(name, tuple(value / _GIB for value in values)) for name, values in terms.items()
        ),
        limits=tuple(_capacity(device, utilisation, top)),
        x_is_log=True,
    )


def _capacity(device: Device | None, utilisation: float, top: int) -> Iterator[tuple[str, float]]:
    """What the plan's device allows, or else some that people have, if they are near."""
    devices = [device] if device else [find_device(name) for name in _SHOWN]
    for found in devices:
        allowed = found.usable_memory * utilisation
        if device or allowed < 1.5 * top:
            yield f"{found.key}, {utilisation:g}", allowed / _GIB


def layer_chart(spec: ModelSpec, workload: Workload) -> Iterator[Chart]:
    """What one sequence keeps in each layer, over all devices; nothing where nothing is kept."""
    layers = [layer for layer in spec.layers if layer.stack != "encoder"]
    kinds: dict[str, list[float]] = {}
    for place, layer in enumerate(layers):
        for mixer in layer.mixers:
            name = mixer.kind.replace("_", " ") + (", window" if mixer.window else "")
            kept = mixer.state_bytes(
                workload.context, workload.encoder_tokens, workload.kv_bits, "serving"
            )
            kinds.setdefault(name, [0.0] * len(layers))[place] += kept / 2**20
    if any(any(values) for values in kinds.values()):
        yield Chart(
            key="layers",
            title=f"Cache of each layer at {workload.context:,} tokens",
            kind="bar",
            x_title="layer",
            y_title="MiB",
            places=tuple(layer.index for layer in layers),
            series=tuple(Series(name, tuple(values)) for name, values in kinds.items()),
        )
