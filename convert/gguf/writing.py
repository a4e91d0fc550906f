"""The file written: tensors made one by one, in the order of the file, and read back by header."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from headcount.sources.gguf import read_gguf

from ..plan.errors import BadValuesError, SelfCheckError
from ..plan.plan import ConversionPlan
from ..stream.outcome import Outcome
from ..stream.pooling import NotFiniteError
from ..stream.reader import SourceReader
from ..stream.threads import one_thread
from ..stream.weight_file import WeightStream
from ..stream.work_folder import WorkFolder
from ..stream.writer import Advance, NewFile
from .encoding import encoded
from .gguf_file import NAME, GgufFile, padding
from .header import header_bytes
from .layout import put_in_order


def write_gguf(
    plan: ConversionPlan, file: GgufFile, reader: SourceReader, work: WorkFolder, advance: Advance
) -> Outcome:
    """Writes `file`, unless a killed run has, and says what was measured. Memory is that of the
    largest tensor, and of one that is made of it. Raises HeadcountError; OSError is a failure to
    write."""
    if NAME in work.finished:
        advance(file.nbytes)
        return Outcome.from_document(work.finished[NAME].measured["outcome"])
    with one_thread(), reader, ThreadPoolExecutor(1) as pool:
        stream = WeightStream(plan, reader, pool)
        with NewFile(work.temporary(NAME), advance) as out:
            for piece in file_pieces(file, stream):
                out.write(piece)
            written = out.finish()
        _check(work, file)
        sources: Mapping[str, Any] = {
            name: digest for one in plan.files for name, digest in stream.digests(one).items()
        }
        measured = {"outcome": stream.outcome.document(), "sources": sources}
        work.keep(NAME, written, measured)
        return stream.outcome


def file_pieces(file: GgufFile, stream: WeightStream) -> Iterator[bytes | memoryview]:
    """All bytes of the file, in pieces that are good until the next one. Raises what making the
    tensors raises."""
    yield header_bytes(file)
    steps = {step.name: step for step in stream.plan.steps}
    for tensor in file.tensors:
        made = [stream.tensor(steps[name]) for name in tensor.steps]
        whole = put_in_order(made, tensor) if made else torch.tensor(tensor.values)
        try:
            yield from encoded(whole, tensor.type, tensor.gain)
        except NotFiniteError as error:
            raise BadValuesError(f"tensor {tensor.name!r} {error}") from error
        yield bytes(padding(tensor.nbytes))


def _check(work: WorkFolder, file: GgufFile) -> None:
    """Reads the start back. Raises SelfCheckError if it is not what the plan says."""
    path = work.temporary(NAME)
    found = [(t.name, t.dtype, t.shape) for t in read_gguf(path).header.tensors]
    if found != [(tensor.name, tensor.type, tensor.shape) for tensor in file.tensors]:
        raise SelfCheckError(f"{path}: does not hold what was planned; nothing was kept")
