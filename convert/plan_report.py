"""A plan as people read it, before anything is written: nothing here needs torch."""

from collections.abc import Iterator

from headcount.report.report import Column, Report, Table

from .gguf.gguf_file import NAME
from .plan.describe import describe_plan
from .plan.document import conversion_plan_document
from .plan.plan import ConversionPlan, OutputFile
from .plan.steps import Step

_TENSOR_COLUMNS = (
    Column(key="name", title="Tensor"),
    Column(key="file", title="File"),
    Column(key="action", title="Action"),
    Column(key="sources", title="From"),
    Column(key="dtype", title="Type"),
    Column(key="shape", title="Shape"),
    Column(key="bytes", title="Bytes", unit="exact_bytes"),
)


def conversion_plan_report(plan: ConversionPlan) -> Report:
    """The plan alone, for `--dry-run`: in lines for people, tensor by tensor for programs."""
    return Report(
        title="Plan (nothing is written)",
        lines=tuple(describe_plan(plan)),
        title_is_answer=True,
        document=conversion_plan_document(plan),
        records=Table(
            key="tensors",
            title="Tensors",
            columns=_TENSOR_COLUMNS,
            rows=tuple(_rows(plan)),
        ),
    )


def _rows(plan: ConversionPlan) -> Iterator[tuple[object, ...]]:
    """Every tensor of the output."""
    if plan.gguf is None:
        yield from (_tensor(step, file) for file in plan.files for step in file.steps)
        return
    for one in plan.gguf.tensors:
        shape = "x".join(map(str, one.shape))
        yield one.name, NAME, one.verb, " ".join(one.steps), one.type, shape, one.nbytes


def _tensor(step: Step, file: OutputFile) -> tuple[object, ...]:
    sources = " ".join(source.name for source in step.sources)
    shape = "x".join(map(str, step.shape))
    return step.name, file.name, step.action.verb, sources, step.dtype, shape, step.nbytes
