"""The weights of an audit, as people and programs read them: by part, by dtype, and active ones."""

from collections.abc import Iterator

from .audited import Audit
from .inventory import Inventory, Line
from .report import Column, Fact, Table

_COLUMNS = (
    Column(key="part", title="Part"),
    Column(key="tensors", title="Tensors", unit="count"),
    Column(key="parameters", title="Parameters", unit="count"),
    Column(key="share", title="Share", unit="percent"),
    Column(key="bytes", title="Bytes", unit="bytes"),
)


def weights_table(inventory: Inventory) -> Table:
    """One row per part. Copies and buffers hold bytes and count as no parameters."""
    total = inventory.parameters
    return Table(
        key="weights",
        title="Weights",
        columns=_COLUMNS,
        rows=tuple(
            (
                line.name,
                line.tensors,
                line.parameters,
                100 * line.parameters / total if line.parameters and total else None,
                line.nbytes,
            )
            for line in inventory.by_part
        ),
    )


def weights_facts(audit: Audit) -> Iterator[Fact]:
    """What is active in a mixture of experts, and what is stored as which type."""
    total, active = audit.spec.parameters, audit.active_parameters
    if total and active is not None and active != total:
        yield Fact(
            key="active_parameters",
            title="Active parameters",
            value=active,
            unit="count",
            note=f"{100 * active / total:.1f} % of {total:,}; a token visits only some experts",
        )
    inventory = audit.inventory
    if inventory is not None:
        kinds = (f"{_share(line, inventory)} {line.name}" for line in inventory.by_dtype)
        yield Fact(
            key="stored_bytes",
            title="Stored",
            value=inventory.nbytes,
            unit="bytes",
            note=", ".join(kinds),
        )


def _share(line: Line, inventory: Inventory) -> str:
    return f"{100 * line.nbytes / inventory.nbytes:.3g} %" if inventory.nbytes else "0 %"


def weights_document(inventory: Inventory) -> dict[str, object]:
    """The object `weights` of the JSON report."""
    return {
        "bytes": inventory.nbytes,
        "parameters": inventory.parameters,
        "by_dtype": [_line_document("dtype", line) for line in inventory.by_dtype],
        "by_part": [_line_document("part", line) for line in inventory.by_part],
    }


def _line_document(key: str, line: Line) -> dict[str, object]:
    return {
        key: line.name,
        "tensors": line.tensors,
        "parameters": line.parameters,
        "bytes": line.nbytes,
    }
