"""A finished conversion as people read it: what moved, and by how much."""

from collections.abc import Iterator

from headcount.audit.report import Column, Fact, Report, Table

from .conversion import ConversionReport
from .plan.describe import describe_plan
from .plan.document import plan_document
from .plan.plan import ConversionPlan, OutputFile
from .plan.steps import Step

_COLUMNS = (
    Column(key="layer", title="Layer", unit="count"),
    Column(key="before", title="K/V heads", unit="count"),
    Column(key="after", title="Now", unit="count"),
    Column(key="key_error", title="K moved", unit="percent"),
    Column(key="value_error", title="V moved", unit="percent"),
)
_DONE = {False: "converted and audited clean", True: "already done, nothing was written"}
_TENSOR_COLUMNS = (
    Column(key="name", title="Tensor"),
    Column(key="file", title="File"),
    Column(key="action", title="Action"),
    Column(key="sources", title="From"),
    Column(key="dtype", title="Type"),
    Column(key="shape", title="Shape"),
    Column(key="bytes", title="Bytes", unit="exact_bytes"),
)


def plan_report(plan: ConversionPlan) -> Report:
    """The plan alone, for `--dry-run`: in lines for people, tensor by tensor for programs."""
    return Report(
        title="Plan (nothing is written)",
        lines=tuple(describe_plan(plan)),
        document=plan_document(plan),
        records=Table(
            key="tensors",
            title="Tensors",
            columns=_TENSOR_COLUMNS,
            rows=tuple(_tensor(step, file) for file in plan.files for step in file.steps),
        ),
    )


def _tensor(step: Step, file: OutputFile) -> tuple[object, ...]:
    sources = " ".join(source.name for source in step.sources)
    shape = "x".join(map(str, step.shape))
    return step.name, file.name, step.action.verb, sources, step.dtype, shape, step.nbytes


def conversion_report(report: ConversionReport) -> Report:
    """What was done."""
    rows = tuple(
        (planned.index, planned.before, planned.after, 100 * layer.key, 100 * layer.value)
        for planned, layer in zip(report.plan.layers, report.layers, strict=True)
    )
    return Report(
        title=f"{report.target}: {_DONE[report.done_before]}",
        facts=(
            Fact(
                key="heads",
                title="K/V heads",
                value=_heads(report.plan),
                note=_query_heads(report.plan),
            ),
            Fact(key="method", title="Method", value=report.plan.request.method),
            Fact(key="nbytes", title="Weights", value=report.plan.nbytes, unit="bytes"),
        ),
        tables=(Table(key="layers", title="Layers", columns=_COLUMNS, rows=rows),),
        notes=(
            "Moved: |merged - member| / |member| over all K (V) heads of a layer; 0 % is lossless.",
            *_repeats(report),
            *report.plan.notes,
        ),
        document=report.document(),
    )


def _heads(plan: ConversionPlan) -> str:
    pairs = dict.fromkeys((layer.before, layer.after) for layer in plan.layers)
    return ", ".join(f"{before} -> {after}" for before, after in pairs)


def _query_heads(plan: ConversionPlan) -> str:
    shapes = dict.fromkeys((layer.num_attention_heads, layer.head_dim) for layer in plan.layers)
    return ", ".join(f"{heads} query heads of {head_dim}" for heads, head_dim in shapes)


def _repeats(report: ConversionReport) -> Iterator[str]:
    """What the heads themselves say: copies of each other make a conversion lossless."""
    if all(layer.lossless for layer in report.layers):
        yield "All merged heads were equal: the result computes what the source does."
        return
    pairs = zip(report.plan.layers, report.layers, strict=True)
    copies = sorted({layer.distinct for planned, layer in pairs if layer.distinct < planned.before})
    if copies:
        yield (
            f"The source holds copies of K/V heads: --kv-heads {copies[-1]} merges only heads that"
            " are equal, so that nothing is lost"
        )
