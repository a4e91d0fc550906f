"""Logged figures against predicted ones, as a report."""

from collections.abc import Sequence

from headcount.model.units import format_bytes
from headcount.report.report import Column, Fact, Report, Table

from .figures import Figure
from .start import Start


def reconciliation_report(name: str, start: Start, found: Sequence[Figure]) -> Report:
    """A table for people; for JSON the list of figures."""
    request = start.request
    agree = sum(bool(figure.agrees) for figure in found)
    known = sum(figure.agrees is not None for figure in found)
    engine = f"{request.engine} {request.version.text if request.version else ''}".strip()
    return Report(
        title=f"{name}: {start.model.model_id} on {engine}",
        facts=(
            Fact("verdict", "Verdict", f"{agree} of {known} figures agree"),
            Fact("context", "Context", request.context, "tokens"),
            Fact("tp", "tp", request.tp, "count"),
            Fact("device", "Device", request.device.name if request.device else "not known"),
        ),
        tables=(_table(found),),
        notes=start.notes,
        items=tuple(figure.document() for figure in found),
    )


def _table(found: Sequence[Figure]) -> Table:
    names = ("logged", "predicted", "low", "high")
    return Table(
        key="figures",
        title="Logged and predicted",
        columns=(
            Column("figure", "Figure"),
            *(Column(name, name.capitalize()) for name in names),
            Column("agrees", "Agrees"),
            Column("why", "Why"),
        ),
        rows=tuple(
            (
                figure.figure,
                *(_value(figure.figure, getattr(figure, name)) for name in names),
                {True: "yes", False: "no", None: "not known"}[figure.agrees],
                figure.why,
            )
            for figure in found
        ),
    )


def _value(name: str, value: float | None) -> str:
    if value is None:
        return ""
    if name.endswith("_bytes"):
        return format_bytes(int(value))
    return f"{value:,.2f}x" if name == "concurrency" else f"{int(value):,}"
