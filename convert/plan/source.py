"""Reading the source: an audit free of errors, and a plain, whole checkpoint."""

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headcount.arch.architecture import Architecture
from headcount.arch.our_types import base_type
from headcount.arch.registry import architecture_of
from headcount.audit import Audit, audit_model
from headcount.model.errors import HeadcountError, SourceChangedError
from headcount.sources.checkpoint import Checkpoint
from headcount.sources.identity import (
    FileIdentity,
    ReadFile,
    check_identity,
    check_unchanged,
    identity_of,
)
from headcount.sources.presence import is_failing_disk, status_of
from headcount.sources.safetensors import FileHeader

from ..attention_map.mapping import AttentionMap, attention_map
from ..stream.os_failures import reading
from .refusals.source import check_folder, check_source
from .side_files import SideFile, shown_name

CONFIG = "config.json"
# In the __metadata__ of weights to which an adapter was added: what it was. So a conversion of
# these is another job than one of the model alone.
MERGED = "headcount.merged_adapter"


@dataclass(frozen=True, kw_only=True, slots=True)
class ConversionSource:
    """A model folder that was audited: what the steps of a plan are derived from. `standing` are
    the identities of all its files before the first was read, and `real` is the folder without
    links and with its own identity, for libraries that read what they like there."""

    folder: Path
    real: tuple[Path, FileIdentity]
    audit: Audit
    config: Mapping[str, Any]
    config_file: ReadFile
    checkpoint: Checkpoint
    attention_map: AttentionMap
    standing: Mapping[str, FileIdentity]

    @property
    def described_by(self) -> Iterator[ReadFile]:
        """The files that describe the tensors: config, index, and headers."""
        return describing_files(self.config_file, self.checkpoint)

    @property
    def model_type(self) -> str:
        return self.audit.spec.model_type

    @property
    def label(self) -> str:
        """What refusals begin with."""
        return f"{self.folder}: {self.model_type}"

    @property
    def reads_pairs(self) -> bool:
        """Whether it is an encoder-decoder, which runs on pairs of a source and a target."""
        return {layer.stack for layer in self.audit.spec.layers} >= {"encoder", "decoder"}

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
    """What identifies the source: a hash of config, index and headers as they were read (the files
    that it is `described_by`), and the identity of every file that the run reads (`files`).
    `folder` has no links on its way; `read_by_others` are its identity, and those of all in it, if
    transformers reads there."""

    name: str
    folder: Path
    fingerprint: str
    headers: tuple[FileHeader, ...]
    described_by: tuple[ReadFile, ...]
    files: tuple[tuple[Path, FileIdentity], ...]
    read_by_others: tuple[tuple[Path, FileIdentity], ...]

    def check(self) -> None:
        """Raises SourceChangedError unless all is as it was when the run began."""
        check_unchanged((*self.files, *self.read_by_others))


def describing_files(config: ReadFile, checkpoint: Checkpoint) -> Iterator[ReadFile]:
    """Config, index and headers: what the fingerprint of a source is one of."""
    read = (config, checkpoint.index_file)
    yield from (file for file in read if file is not None)
    yield from (header.read for header in checkpoint.files if header.read is not None)


def fingerprint_of(described_by: Iterable[ReadFile]) -> str:
    """A digest of names and contents, of config, index and headers as they were read: what
    conversion.json knows its source by."""
    digest = hashlib.sha256()
    for file in described_by:
        digest.update(f"{file.path.name}\0{len(file.start)}\0".encode())
        digest.update(file.start)
    return f"sha256:{digest.hexdigest()}"


def read_source(folder: Path) -> ConversionSource:
    """The model in `folder`. Raises HeadcountError for anything a conversion cannot start from."""
    check_folder(folder)
    path = Path(os.path.realpath(folder))
    real, standing = _standing(path)
    audit = audit_model(str(folder.absolute()))
    check_source(folder, audit, audit.source.config or {})
    config = audit.source.config_file
    if config is None or audit.checkpoint is None or audit.source.config is None:
        raise SourceChangedError(f"{folder / CONFIG}: was removed meanwhile; start again")
    return ConversionSource(
        folder=folder,
        real=(path, real),
        audit=audit,
        config=audit.source.config,
        config_file=config,
        checkpoint=audit.checkpoint,
        attention_map=attention_map(audit),
        standing=standing,
    )


def source_state(
    source: ConversionSource,
    side_files: Iterable[SideFile],
    name: str | None,
    *,
    whole_folder: bool = False,
) -> SourceState:
    """The state of what was read of `source`, and of the `side_files` that are still to be copied.
    `whole_folder`: also of all that lies beside them, since transformers will read what it likes.

    Raises SourceChangedError where the files were not all there, as they were read, from the start.
    """
    files = {file.path: file.identity for file in source.described_by}
    files |= {file.path: file.identity for file in side_files}
    for path, identity in files.items():
        if path.parent.absolute() == source.folder.absolute():
            check_identity(path, source.standing.get(path.name), identity)
    folder = source.real[0]
    others = ((folder / name, identity) for name, identity in source.standing.items())
    return SourceState(
        name=name or shown_name(folder.name),
        folder=folder,
        fingerprint=fingerprint_of(source.described_by),
        headers=source.checkpoint.files,
        described_by=tuple(source.described_by),
        files=tuple(files.items()),
        read_by_others=(source.real, *others) if whole_folder else (),
    )


def _standing(folder: Path) -> tuple[FileIdentity, dict[str, FileIdentity]]:
    """The folder's own identity, and that of every regular file in it by its name, before anything
    of it is read. By its descriptor: were another one to take its name meanwhile, files of both
    would be found, and what is read of the two would be taken for one."""
    found: dict[str, FileIdentity] = {}
    with reading(folder), _opened(folder) as descriptor:
        own = identity_of(os.fstat(descriptor))
        with os.scandir(descriptor) as entries:
            for entry in entries:
                status = _status(folder / entry.name, descriptor)
                if status is not None and stat.S_ISREG(status.st_mode):
                    found[entry.name] = identity_of(status)
    return own, found


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _status(path: Path, folder: int) -> os.stat_result | None:
    """None for a link to nothing or to what is not ours to read, and for what is gone by now: what
    needs it will say so. Raises HeadcountError for a disk that fails."""
    try:
        return status_of(path, folder=folder)
    except HeadcountError as error:
        if is_failing_disk(error):
            raise
        return None
