"""The weights of an audit, as people and programs read them: by part, by dtype, and active ones."""

from collections.abc import Iterator
from itertools import combinations

from headcount.model.units import format_bytes
from headcount.report.report import Column, Fact, Table

from .audited import Audit
from .inventory import Inventory, Line

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
        brief=0,
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
            note=f"{100 * active / total:.1f} % of {total:,}",
        )
    inventory = audit.inventory
    if inventory is not None:
        kinds = [f"{_share(line, inventory)} {line.name}" for line in inventory.by_dtype]
        yield Fact(
            key="stored_bytes",
            title="Stored",
            value=inventory.nbytes,
            unit="bytes",
            note=", ".join([*kinds, *_lacking(audit)]),
        )


def _lacking(audit: Audit) -> Iterator[str]:
    """That files are not there, and what the index says of all together."""
    checkpoint = audit.checkpoint
    if checkpoint is not None and checkpoint.missing:
        claimed = checkpoint.total_size
        whole = "" if claimed is None else f" of {format_bytes(claimed)} by the index"
        yield f"{len(checkpoint.missing):,} of its files not there{whole}"


def _share(line: Line, inventory: Inventory) -> str:
    return f"{100 * line.nbytes / inventory.nbytes:.3g} %" if inventory.nbytes else "0 %"


_REASONS = {
    "mtp": "layers for multi-token prediction",
    "copies": "stored copies of tied matrices",
    "buffers": "masks and other buffers",
    "vision": "the vision tower",
    "audio": "the audio tower",
}


def weights_notes(inventory: Inventory, published: int | None) -> Iterator[str]:
    """What counts leave out or put in, and the published count with the reason for a difference."""
    lines = {line.name: line for line in inventory.by_part}
    if "mtp" in lines:
        yield f"{lines['mtp'].parameters or 0:,} of the parameters are {_REASONS['mtp']}."
    if "copies" in lines:
        yield (
            f"{lines['copies'].nbytes:,} bytes are {_REASONS['copies']}. They count as no"
            " parameters, which holds where their values are those of the embedding: headers do not"
            f" say it, --scan does. Where they differ, transformers loads"
            f" {lines['copies'].elements:,} parameters more."
        )
    held = inventory.parameters
    if published is not None and held is not None and published != held:
        why = difference(inventory, published)
        yield f"Published count: {published:,}, here {held:,}" + (f": {why}." if why else ".")


def difference(inventory: Inventory, published: int) -> str:
    """The parts that make up the difference to a published count, or nothing where none do.

    Published counts are rounded or sums over all stored elements: buffers, copies and further
    layers count in some and not in others.
    """
    held = inventory.parameters
    if held is None:
        return ""
    amounts = {line.name: line.elements for line in inventory.by_part if line.name in _REASONS}
    for size in range(1, len(amounts) + 1):
        for names in combinations(amounts, size):
            parts = sum(amounts[name] for name in names)
            if parts and abs(published - held) == parts:
                verb = "it counts" if published > held else "it leaves out"
                return f"{verb} {' and '.join(_REASONS[name] for name in names)}"
    return ""


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
