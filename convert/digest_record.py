"""The digests of what a conversion has read and written, as its record keeps them.

A file of weights is not read from start to end (copies are made inside the kernel, and heads are
read when they are merged), so what is recorded of each are the digests of its tensors, and one over
these: no byte is read for it that was not read anyway.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from headcount.sources.safetensors import FileHeader

from .gguf.gguf_file import NAME
from .plan.existing import DIGEST
from .plan.plan import ConversionPlan
from .plan.steps import Copy
from .rewrite.store import Rewritten
from .stream.hashing import digest_of_bytes
from .stream.work_folder import WorkFolder

# The digest over the bytes of a header and, in the order of their bytes, over the digests of the
# tensors that were read (in hex digits).
DIGEST_OF_TENSORS = f"{DIGEST}_of_tensors"


def digest_record(
    plan: ConversionPlan,
    work: WorkFolder,
    rewritten: Rewritten,
    manifest: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """`inputs`: every file that was read. `tensors`: of the output; none of a GGUF file, which has
    a digest as a whole. `source_tensors`: those of the
    source that others were computed from, where they are no copies. `rewritten`: those of them that
    another method than pooling changed first."""
    files = [file.name for file in plan.files] if plan.gguf is None else [NAME]
    made = {} if plan.gguf is not None else _made(plan, work)
    read: dict[str, str] = {}
    for name in files:
        read |= work.finished[name].measured["sources"]
    read |= rewritten.replaced
    copied = {
        step.sources[0].name: made[step.name]
        for step in plan.steps
        if step.name in made
        and isinstance(step.action, Copy)
        and step.sources[0].name not in rewritten.replaced
    }
    return {
        "inputs": dict(sorted(_inputs(plan, {**read, **copied}, manifest))),
        "tensors": dict(sorted(made.items())),
        "source_tensors": dict(sorted(read.items())),
        "rewritten": sorted(rewritten.replaced),
    }


def _made(plan: ConversionPlan, work: WorkFolder) -> dict[str, str]:
    """The digest of each tensor of the output's safetensors files."""
    return {
        step.name: digest
        for file in plan.files
        for step, digest in zip(file.steps, work.finished[file.name].parts[1:], strict=True)
    }


def _inputs(
    plan: ConversionPlan, tensors: Mapping[str, str], manifest: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each input by its name."""
    headers = {header.path.name: header for header in plan.source.headers}
    for file in plan.source.described_by:
        header = headers.get(file.path.name)
        kind = DIGEST if header is None else DIGEST_OF_TENSORS
        digest = digest_of_bytes(file.start if header is None else _whole(header, tensors))
        yield file.path.name, {"bytes": file.identity.size, kind: digest}
    for side_file in plan.side_files:
        yield side_file.name, dict(manifest[side_file.name])


def _whole(header: FileHeader, tensors: Mapping[str, str]) -> bytes:
    assert header.read is not None
    read = (tensors[tensor.name] for tensor in header.tensors if tensor.name in tensors)
    return header.read.start + "".join(read).encode()
