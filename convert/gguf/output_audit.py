"""The audit of what a plan will make, before it is there: its config, and headers that its steps
say."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from headcount.audit.audited import Audit
from headcount.audit.auditing import audit_source
from headcount.sources.checkpoint import Checkpoint, single_file
from headcount.sources.found import FoundModel
from headcount.sources.safetensors import FileHeader, TensorInfo

from ..plan.source import CONFIG
from ..plan.steps import Step


def output_audit(steps: Iterable[Step], config: Mapping[str, Any], name: str) -> Audit:
    """The audit of a model `name` with the tensors that `steps` make. Raises HeadcountError."""
    found = FoundModel(
        kind="config", id=name, where=f"{name}/{CONFIG}", config=config, checkpoint=_headers(steps)
    )
    return audit_source(found)


def _headers(steps: Iterable[Step]) -> Checkpoint:
    tensors, position = [], 0
    path = Path("model.safetensors")
    for step in steps:
        end = position + step.nbytes
        tensors.append(
            TensorInfo(
                name=step.name,
                dtype=step.dtype,
                shape=step.shape,
                file=path.name,
                offsets=(position, end),
            )
        )
        position = end
    header = FileHeader(path=path, tensors=tuple(tensors), metadata={}, data_start=0, size=position)
    return replace(single_file(header), partial=False)
