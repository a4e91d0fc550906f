"""A model with its adapter merged, as a folder of its own for as long as it is converted.

peft's merge_and_unload makes the same weights, but for the rounding of the sum.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from headcount.audit import Audit, audit_model
from headcount.running.passing_folder import passing_folder, remove_folder
from headcount.running.signals import exit_cleanly, on_signals
from headcount.sources.adapter import Adapter
from headcount.sources.checkpoint import ADAPTER_CONFIG, ADAPTER_WEIGHTS, Checkpoint, inside
from headcount.sources.identity import FileIdentity, check_unchanged, identity_of
from headcount.sources.safetensors import FileHeader, read_header

from ..plan.errors import BadValuesError, CannotConvertError
from ..plan.leftovers import leftovers, own_folder, real_place
from ..plan.plan import OutputFile
from ..plan.refusals.source import check_source, refuse_adapter
from ..plan.side_files import sort_side_files
from ..plan.source import MERGED
from ..plan.steps import copy
from ..plan.target import check_space, check_target
from ..stream.hashing import digest_of
from ..stream.os_failures import writing
from ..stream.pooling import NotFiniteError
from ..stream.reader import SourceReader
from ..stream.safetensors_header import header_bytes
from ..stream.side_file_copy import copy_side_file
from ..stream.threads import one_thread
from ..stream.weight_file import raw_bytes
from ..stream.writer import NewFile, write_bytes
from .lora_config import read_lora_config
from .lora_pairs import LoraPair, lora_pairs
from .merged_weight import merged_weight

_KIND = "merged"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Merging:
    """A model, its adapter, what is added to which weight, and the state of all files that say so.
    `newest_ns` is when one of them last changed."""

    folder: Path
    checkpoint: Checkpoint
    header: FileHeader
    pairs: Mapping[str, LoraPair]
    digest: str
    files: tuple[tuple[Path, FileIdentity], ...]

    @property
    def newest_ns(self) -> int:
        return max(max(at.modified_ns, at.changed_ns) for _, at in self.files)


@contextmanager
def merged_source(adapter: Adapter, target: Path) -> Iterator[Path]:
    """The model beside `adapter` with it in its weights, as a folder beside `target` that is
    removed when the context ends. One tensor at a time is held. Raises HeadcountError."""
    if adapter.is_alone:
        refuse_adapter(adapter)
    merging = _planned(adapter.folder)
    check_target(adapter.folder, target)
    shards, nbytes = merging.checkpoint.files, sum(h.size for h in merging.checkpoint.files)
    check_space(target, 2 * nbytes, 2 * len(shards))
    for left in leftovers(target, _KIND):
        remove_folder(left)
    with ExitStack() as stack:
        with writing(target, nbytes):
            made = stack.enter_context(passing_folder(own_folder(real_place(target), _KIND)))
            with on_signals(exit_cleanly):
                _fill(merging, made)
        yield made


def _planned(folder: Path) -> _Merging:
    """All that can be refused before a weight is read."""
    config_state = identity_of((folder / ADAPTER_CONFIG).stat())
    config = read_lora_config(folder)
    path = inside(folder, ADAPTER_WEIGHTS)
    if not path.is_file():
        raise CannotConvertError(
            f"{folder}: no {ADAPTER_WEIGHTS} beside {ADAPTER_CONFIG}: save the adapter as"
            " safetensors"
        )
    header = read_header(path)
    assert header.read is not None
    audit = audit_model(str(folder.absolute()))
    check_source(folder, audit, audit.source.config or {})
    assert audit.checkpoint is not None
    conv1d = audit.architecture.names.transposed
    return _Merging(
        folder=folder,
        checkpoint=audit.checkpoint,
        header=header,
        pairs=lora_pairs(config, header, audit.checkpoint, is_conv1d=conv1d),
        digest=f"{digest_of(config.path)} {digest_of(path, header.read.identity)}",
        files=((config.path, config_state), *_seen(audit, audit.checkpoint, header)),
    )


def _seen(
    audit: Audit, checkpoint: Checkpoint, adapter: FileHeader
) -> Iterator[tuple[Path, FileIdentity]]:
    headers = (header.read for header in (*checkpoint.files, adapter))
    for file in (audit.source.config_file, checkpoint.index_file, *headers):
        if file is not None:
            yield file.path, file.identity


def _fill(merging: _Merging, made: Path) -> None:
    checkpoint = merging.checkpoint
    with one_thread(), SourceReader([*checkpoint.files, merging.header]) as reader:
        for header in checkpoint.files:
            _write(merging, header, reader, made)
    if checkpoint.index_file is not None:
        write_bytes(made / checkpoint.index_file.path.name, checkpoint.index_file.start)
    for file in sort_side_files(merging.folder, frozenset())[0]:
        copy_side_file(file, made)
    check_unchanged(merging.files)
    # So that an output is not taken for older than its source, nor a new copy for a new source.
    for path in made.iterdir():
        os.utime(path, ns=(merging.newest_ns, merging.newest_ns))


def _write(merging: _Merging, header: FileHeader, reader: SourceReader, made: Path) -> None:
    name = header.path.name
    metadata = {**header.metadata, MERGED: merging.digest}
    steps = tuple(copy(tensor) for tensor in header.tensors)
    with NewFile(made / name, lambda count: None) as out:
        out.write(header_bytes(OutputFile(name=name, metadata=metadata, steps=steps)))
        for tensor in header.tensors:
            pair = merging.pairs.get(tensor.name)
            if pair is None:
                out.copy(reader.descriptor(name), *tensor.offsets)
            else:
                out.write(raw_bytes(_merged(reader, pair)))
        out.finish()


def _merged(reader: SourceReader, pair: LoraPair) -> torch.Tensor:
    try:
        return merged_weight(
            reader.tensor(pair.weight),
            reader.tensor(pair.down),
            reader.tensor(pair.up),
            scaling=pair.scaling,
            transposed=pair.transposed,
        )
    except NotFiniteError as error:
        path = reader.path(pair.weight.file)
        raise BadValuesError(f"{path}: tensor {pair.weight.name!r} {error}") from error
