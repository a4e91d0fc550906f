"""Reading the source: an audit free of errors, and a plain, whole checkpoint."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headcount.arch.read_config import read_config
from headcount.audit import Audit, audit_model
from headcount.model.errors import HeadcountError, InvalidWeightsError
from headcount.sources.checkpoint import Checkpoint
from headcount.sources.json_file import MAX_CONFIG_BYTES, open_regular, read_json
from headcount.sources.safetensors import MAX_HEADER_BYTES

from .errors import CannotConvertError, SourceChangedError
from .plan import SideFile, SourceState
from .side_files import shown_name
from .standing import Standing, standings

CONFIG = "config.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A model folder that was audited: what the steps of a plan are derived from. `standings` are
    those of the tensors in numbered lists, by name."""

    folder: Path
    audit: Audit
    config: Mapping[str, Any]
    checkpoint: Checkpoint
    standings: Mapping[str, Standing]

    @property
    def text_type(self) -> str:
        """The type of the language model, which is the model's own unless it is nested."""
        return read_config(self.config, CONFIG).text.model_type


def read_source(folder: Path) -> Source:
    """The model in `folder`. Raises HeadcountError for anything a conversion cannot start from."""
    if not folder.is_dir():
        raise HeadcountError(f"{folder}: not a folder; convert reads a folder with config.json")
    if not os.path.lexists(folder / CONFIG):
        raise HeadcountError(f"{folder}: no {CONFIG} there; convert reads a folder that has one")
    audit = audit_model(str(folder.absolute()))
    _refuse_errors(folder, audit)
    checkpoint, census = audit.checkpoint, audit.census
    if checkpoint is None or census is None or checkpoint.format != "safetensors":
        raise InvalidWeightsError(
            f"{folder}: no safetensors weights: convert reads model.safetensors or an index and its"
            " shards (and .bin files with --allow-pickle)"
        )
    _refuse_stale_index(checkpoint)
    config = read_json(folder / CONFIG)
    _refuse_quantised(folder, config)
    return Source(
        folder=folder,
        audit=audit,
        config=config,
        checkpoint=checkpoint,
        standings=standings(
            checkpoint.tensors, census.stacks, audit.architecture, audit.spec.layers
        ),
    )


def _refuse_errors(folder: Path, audit: Audit) -> None:
    errors = [finding for finding in audit.findings if finding.severity == "error"]
    if errors:
        first, more = errors[0], len(errors) - 1
        others = f" (and {more} more; `headcount audit` lists them)" if more else ""
        raise InvalidWeightsError(
            f"{folder}: {first.code} {first.where}: {first.message}{others}; {first.hint}"
        )


def _refuse_stale_index(checkpoint: Checkpoint) -> None:
    if checkpoint.missing:
        raise InvalidWeightsError(
            f"{checkpoint.folder}: missing {', '.join(sorted(checkpoint.missing)[:3])}:"
            " download the shards again"
        )
    if checkpoint.unlisted:
        raise InvalidWeightsError(
            f"{checkpoint.index}: tensor {checkpoint.unlisted[0]!r} is in a shard but not in"
            " weight_map, so it is not clear whether the model has it: repair the index"
        )


def _refuse_quantised(folder: Path, config: Mapping[str, Any]) -> None:
    nested = [value for value in config.values() if isinstance(value, dict)]
    for holder in (config, *nested):
        settings = holder.get("quantization_config") or holder.get("compression_config")
        if settings:
            method = settings.get("quant_method") if isinstance(settings, dict) else None
            raise CannotConvertError(
                f"{folder / CONFIG}: the weights are quantised ({method or 'quantization_config'}):"
                " codes cannot be averaged; convert the original model, then quantise the result"
            )


def source_state(source: Source, side_files: Iterable[SideFile], name: str | None) -> SourceState:
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
    yield CONFIG, MAX_CONFIG_BYTES
    if checkpoint.index is not None:
        yield checkpoint.index.name, MAX_HEADER_BYTES
    for header in checkpoint.files:
        yield header.path.name, header.data_start


def _read_start(path: Path, limit: int) -> bytes:
    with os.fdopen(open_regular(path), "rb") as file:
        return file.read(limit)


def _stats(path: Path) -> tuple[int, int, int]:
    try:
        stat = path.stat()
    except OSError as error:
        raise SourceChangedError(f"{path}: {error.strerror}") from error
    return stat.st_size, stat.st_mtime_ns, stat.st_ino
