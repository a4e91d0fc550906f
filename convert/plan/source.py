"""Reading the source: an audit free of errors, and a plain, whole checkpoint."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headcount.arch.architecture import Architecture
from headcount.arch.our_types import base_type
from headcount.arch.registry import architecture_of
from headcount.audit import Audit, audit_model
from headcount.model import limits
from headcount.sources.checkpoint import Checkpoint
from headcount.sources.json_file import open_bytes, read_json
from headcount.sources.safetensors import FileHeader

from ..attention_map.mapping import AttentionMap, attention_map
from .errors import SourceChangedError
from .refusals.source import check_folder, check_source
from .side_files import SideFile, shown_name

CONFIG = "config.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class ConversionSource:
    """A model folder that was audited: what the steps of a plan are derived from."""

    folder: Path
    audit: Audit
    config: Mapping[str, Any]
    checkpoint: Checkpoint
    attention_map: AttentionMap

    @property
    def model_type(self) -> str:
        return self.audit.spec.model_type

    @property
    def label(self) -> str:
        """What refusals begin with."""
        return f"{self.folder}: {self.model_type}"

    @property
    def architecture(self) -> Architecture:
        """That of the language model."""
        return self.audit.architecture

    @property
    def whole(self) -> Architecture:
        """That of the model, which may nest the language model; of the type that ours groups."""
        return architecture_of(base_type(self.model_type)) or self.architecture

    @property
    def spelled(self) -> Architecture | None:
        """That of the type as it is spelled; None for one of ours, and for another name."""
        known = architecture_of(self.model_type)
        return known if known is not None and self.model_type in known.types else None


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceState:
    """What identifies the source: a hash of config, index and headers, and what a change of the
    files during the run would alter (size, modification time, inode)."""

    name: str
    fingerprint: str
    headers: tuple[FileHeader, ...]
    stats: tuple[tuple[Path, tuple[int, int, int]], ...]


def read_source(folder: Path) -> ConversionSource:
    """The model in `folder`. Raises HeadcountError for anything a conversion cannot start from."""
    check_folder(folder)
    audit = audit_model(str(folder.absolute()))
    config = read_json(folder / CONFIG)
    check_source(folder, audit, config)
    assert audit.checkpoint is not None
    return ConversionSource(
        folder=folder,
        audit=audit,
        config=config,
        checkpoint=audit.checkpoint,
        attention_map=attention_map(audit),
    )


def source_state(
    source: ConversionSource, side_files: Iterable[SideFile], name: str | None
) -> SourceState:
    """Hashes config, index and headers (tensor bytes are not read), and remembers the stats of
    these files and of those that are copied."""
    folder, checkpoint = source.folder, source.checkpoint
    digest = hashlib.sha256()
    for file, limit in _described_by(checkpoint):
        data = _read_start(folder / file, limit)
        digest.update(f"{file}\0{len(data)}\0".encode())
        digest.update(data)
    index = () if checkpoint.index is None else (checkpoint.index,)
    paths = [folder / CONFIG, *index, *(header.path for header in checkpoint.files)]
    paths += [file.path for file in side_files]
    return SourceState(
        name=name or shown_name(folder.resolve().name),
        fingerprint=f"sha256:{digest.hexdigest()}",
        headers=checkpoint.files,
        stats=tuple((path, _stats(path)) for path in paths),
    )


def check_unchanged(state: SourceState) -> None:
    """Raises SourceChangedError if a file is not the one that was planned with."""
    for path, before in state.stats:
        if _stats(path) != before:
            raise SourceChangedError(f"{path}: changed during the conversion; start again")


def _described_by(checkpoint: Checkpoint) -> Iterator[tuple[str, int]]:
    """The files that describe the tensors, each with how much of its start does so."""
    yield CONFIG, limits.JSON_BYTES.most
    if checkpoint.index is not None:
        yield checkpoint.index.name, limits.INDEX_BYTES.most
    for header in checkpoint.files:
        yield header.path.name, header.data_start


def _read_start(path: Path, limit: int) -> bytes:
    with open_bytes(path) as file:
        return file.read(limit)


def _stats(path: Path) -> tuple[int, int, int]:
    try:
        stat = path.stat()
    except OSError as error:
        raise SourceChangedError(f"{path}: {error.strerror}") from error
    return stat.st_size, stat.st_mtime_ns, stat.st_ino
