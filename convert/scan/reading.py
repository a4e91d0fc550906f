"""One pass over all float tensors, one at a time: no more than the largest one is in memory."""

from collections.abc import Iterator
from math import isfinite

import torch

from headcount.audit.audited import Audit
from headcount.audit.census import copies
from headcount.audit.rules.scanned import ScanFacts, TensorScan, TiedScan
from headcount.model.errors import UnsupportedModelError
from headcount.running.progress import progress_bar
from headcount.sources.checkpoint import Checkpoint
from headcount.sources.safetensors import TensorInfo

from ..stream.head_layout import split_heads
from ..stream.reader import DTYPES, SourceReader
from ..stream.threads import one_thread
from .heads import Likeness, key_value_tensors

_CHUNK = 2**22  # elements that are looked at in one piece


def scan(audit: Audit, *, progress: bool = True) -> ScanFacts:
    """Reads every float tensor of a local checkpoint once. Raises HeadcountError.

    `progress`: a bar on stderr where that is a terminal.
    """
    checkpoint = _local(audit)
    of_heads = key_value_tensors(audit)
    layers: dict[int, Likeness] = {}
    tensors: list[TensorScan] = []
    with one_thread():
        for info, values in _read(checkpoint, progress=progress):
            tensors.append(_look(info, values))
            if info.name in of_heads:
                found = of_heads[info.name]
                for part, heads in split_heads(values, found.blocks).items():
                    if part in ("k", "v"):
                        index = found.place.index
                        layers.setdefault(index, Likeness(len(heads))).add(part, heads)
    return ScanFacts(
        tuple(tensors),
        tuple(layers[index].result(index) for index in sorted(layers)),
        tuple(tied_values(audit, checkpoint)),
    )


def tied_values(audit: Audit, checkpoint: Checkpoint) -> Iterator[TiedScan]:
    """Each stored tensor that the config ties to the embedding, held against its values, which are
    read for it. Raises HeadcountError."""
    census, tensors = audit.census, checkpoint.tensors
    embedding = None if census is None else census.embedding
    if census is None or embedding is None:
        return
    names = copies(tensors, census, tied=audit.spec.tie_word_embeddings)
    with SourceReader(checkpoint.files) as reader:
        for info in (tensors[name] for name in sorted(names)):
            yield TiedScan(info.name, embedding.name, info.elements, _same(reader, info, embedding))


def _same(reader: SourceReader, one: TensorInfo, other: TensorInfo) -> bool:
    """Whether transformers would see equal matrices; two element types are cast to one by it."""
    if one.shape != other.shape:
        return False
    if one.dtype == other.dtype:
        pairs = zip(reader.pieces(one), reader.pieces(other), strict=True)
        return all(a == b for a, b in pairs)
    if not {one.dtype, other.dtype} <= DTYPES.keys():
        return False
    values = reader.tensor(one)
    return torch.equal(values, reader.tensor(other).to(values.dtype))


def _local(audit: Audit) -> Checkpoint:
    checkpoint = audit.checkpoint
    if checkpoint is None or audit.source.kind not in ("folder", "file"):
        raise UnsupportedModelError(
            f"{audit.source.id}: --scan reads the weights, so it needs a folder or a file that"
            " holds them"
        )
    if not all(header.path.name.endswith(".safetensors") for header in checkpoint.files):
        raise UnsupportedModelError(f"{audit.source.id}: --scan reads safetensors files only")
    return checkpoint


def _read(checkpoint: Checkpoint, *, progress: bool) -> Iterator[tuple[TensorInfo, torch.Tensor]]:
    """The float tensors in the order in which they lie on the disk."""
    floats = [info for info in checkpoint.tensors.values() if info.dtype in DTYPES]
    size = sum(info.nbytes for info in floats)
    with (
        SourceReader(checkpoint.files) as reader,
        progress_bar(None, "reading", "B", shown=progress, total=size) as bar,
    ):
        for info in sorted(floats, key=lambda info: (info.file, info.offsets)):
            yield info, reader.tensor(info)
            bar.update(info.nbytes)


def _look(info: TensorInfo, values: torch.Tensor) -> TensorScan:
    """Counts what is not finite. Least and greatest value tell most tensors in one fast pass: one
    is NaN where any value is, and isfinite is 60 times slower on 16-bit floats."""
    nans = infinities = 0
    zero = info.elements > 0
    for chunk in values.reshape(-1).split(_CHUNK) if zero else ():
        least, greatest = (float(value) for value in torch.aminmax(chunk))
        if not (isfinite(least) and isfinite(greatest)):
            nans += int(torch.isnan(chunk).sum())
            infinities += int(torch.isinf(chunk).sum())
        zero = zero and least == greatest == 0
    return TensorScan(info.name, info.elements, nans, infinities, zero)
