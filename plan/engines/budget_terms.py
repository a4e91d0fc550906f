"""Terms that the budgets of several engines have."""

from math import ceil

from headcount.model.units import format_bytes

from ..budget import Budget, Term
from ..devices import Device
from ..overhead import plan_overhead
from ..planned_model import PlannedModel
from ..request import Workload
from .loaded_weights import stage_weights

_GIB = 2**30


def share_of(device: Device, share: float, name: str = "") -> Term:
    """What an engine may take: a share of the visible memory."""
    words = f"{format_bytes(device.usable_memory)} visible x {share:g}"
    return Term(
        key="requested",
        title="Requested",
        bytes=ceil(device.usable_memory * share),
        formula=f"{words} ({name})" if name else words,
        source=f"visible of nominal {format_bytes(device.memory)}: {device.usable_source}",
    )


def runtime(gib: float, what: str) -> Term:
    """What is taken outside of tensors: an assumption, half of it either way."""
    return Term(
        key="runtime",
        title="Runtime",
        bytes=ceil(gib * _GIB),
        formula=f"{gib:g} GiB of {what}",
        source="an assumption",
        error_bytes=ceil(gib / 2 * _GIB),
    )


def unreserved(model: PlannedModel, device: Device | None, work: Workload) -> tuple[Budget, ...]:
    """Of an engine that reserves nothing for itself: all memory but a step's activations."""
    assert device is not None
    overhead = plan_overhead(model.spec, work, step_limit=None)
    batch = min(work.batch_size, 512)
    forward = overhead.forward_bytes(512, 1) + overhead.sampler_bytes(batch) // 4
    activations = Term(
        key="activations",
        title="Activations",
        bytes=forward,
        formula=f"forward of 512 tokens and logits of {batch:,} sequences",
        source="widths of the layers",
        error_bytes=forward,
    )
    allowed = share_of(device, work.request.utilisation or 0.95, "of the visible memory")
    others = (runtime(0.5, "context and workspaces"), activations)
    return tuple(
        Budget(allowed=allowed, fixed=(weights, *others)) for weights in stage_weights(model, work)
    )
