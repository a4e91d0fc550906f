"""A checkpoint's tensors, from one safetensors file, an index, or a folder that holds either."""

import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from headcount.model import limits
from headcount.model.errors import HeadcountError, InvalidConfigError, InvalidWeightsError, short
from headcount.model.numbers import whole

from .identity import ReadFile
from .json_file import read_json_file
from .presence import is_there
from .safetensors import FileHeader, TensorInfo, check_names, read_header

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
SUFFIXES = (".safetensors",)


class Index(NamedTuple):
    """What an index says: the shard of each tensor, and its claims of all bytes and of all
    parameters, None where it does not make them."""

    weight_map: dict[str, str]
    total_size: int | None
    total_parameters: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """The headers of all files of one checkpoint.

    `tensors` maps names to their place; `missing` maps a shard that the index names, and that is
    not there, to the tensors it should hold; `unlisted` are tensors of a shard that the index does
    not know; `total_size` is the index's claim in bytes, `total_parameters` that of parameters,
    None without an index. `partial`: this is one shard of a set, so that what it lacks may be
    elsewhere. `format` is safetensors, gguf or pickle; only of the first can `offsets` of a tensor
    be read without more ado. `suspects` maps a pickle to what it imports although no tensor needs
    it. `index_file` is the index as it was read.
    """

    folder: Path
    files: tuple[FileHeader, ...]
    tensors: Mapping[str, TensorInfo]
    missing: Mapping[str, tuple[str, ...]]
    unlisted: tuple[str, ...]
    index: Path | None
    total_size: int | None
    total_parameters: int | None = None
    partial: bool = False
    format: str = "safetensors"
    suspects: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    index_file: ReadFile | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors, headers left out: what `total_size` should say."""
        return sum(tensor.nbytes for tensor in self.tensors.values())


def find_weights(folder: Path) -> Path | None:
    """The index or the single file that transformers would load from `folder`; None if none. The
    weights of an adapter are none of a model."""
    for name in (SINGLE, INDEX):
        if is_there(folder / name, or_its_link=True):
            return folder / name
    others = [path for path in folder.glob("*.safetensors") if path.name != ADAPTER_WEIGHTS]
    return others[0] if len(others) == 1 else None


def read_checkpoint(path: Path) -> Checkpoint:
    """Headers of the checkpoint at `path`, a file or an index. Raises HeadcountError."""
    if path.name.endswith(".json"):
        return _read_indexed(path)
    return single_file(read_header(path))


def single_file(header: FileHeader) -> Checkpoint:
    """The checkpoint that one safetensors file is."""
    path = header.path
    return Checkpoint(
        folder=path.parent,
        files=(header,),
        tensors={tensor.name: tensor for tensor in header.tensors},
        missing={},
        unlisted=(),
        index=None,
        total_size=None,
        partial=re.search(r"-\d+-of-\d+\.safetensors$", path.name) is not None,
    )


def _read_indexed(path: Path) -> Checkpoint:
    index, index_file = read_index(path)
    shards = set(index.weight_map.values())
    present = {s for s in shards if is_there(path.parent / s, or_its_link=True)}
    files = [read_header(inside(path.parent, shard)) for shard in sorted(present)]
    return replace(join_shards(path, index, files), index_file=index_file)


def join_shards(path: Path, claims: Index, files: Iterable[FileHeader]) -> Checkpoint:
    """One checkpoint of the index at `path` and the headers of the shards that are there.

    Raises InvalidWeightsError if a shard lacks a tensor that the index expects in it.
    """
    files, weight_map = tuple(files), claims.weight_map
    stored = sum(len(file.tensors) for file in files)
    if stored > limits.TENSORS.most:
        raise InvalidWeightsError(limits.TENSORS.refusal(path, stored))
    present = {file.path.name for file in files}
    missing = _missing(weight_map, present)
    tensors = {tensor.name: tensor for tensor in _in_its_shard(files, weight_map)}
    lost = [n for n, file in weight_map.items() if n not in tensors and file not in missing]
    if lost:
        raise InvalidWeightsError(
            f"{path}: tensor {short(lost[0])} should be in {weight_map[lost[0]]}, whose header does"
            f" not have it ({len(lost)} such tensors): the index and the shards do not belong"
            " together"
        )
    unlisted = tuple(t.name for file in files for t in file.tensors if t.name not in weight_map)
    return Checkpoint(
        folder=path.parent,
        files=files,
        tensors=tensors,
        missing=missing,
        unlisted=unlisted,
        index=path,
        total_size=claims.total_size,
        total_parameters=claims.total_parameters,
    )


def _missing(weight_map: Mapping[str, str], present: Set[str]) -> dict[str, tuple[str, ...]]:
    """The tensors of each shard that is not there."""
    lost: dict[str, list[str]] = {}
    for name, shard in weight_map.items():
        if shard not in present:
            lost.setdefault(shard, []).append(name)
    return {shard: tuple(lost[shard]) for shard in sorted(lost)}


def _in_its_shard(
    files: Iterable[FileHeader], weight_map: Mapping[str, str]
) -> Iterable[TensorInfo]:
    for file in files:
        yield from (t for t in file.tensors if weight_map.get(t.name) == t.file)


def read_index(path: Path, suffixes: tuple[str, ...] = SUFFIXES) -> tuple[Index, ReadFile]:
    """The index at `path`, and the file that it was read from. Raises InvalidWeightsError."""
    try:
        index, file = read_json_file(path, limits.INDEX_BYTES)
    except InvalidConfigError as error:
        raise InvalidWeightsError(str(error)) from error
    return check_index(path, index, suffixes), file


def check_index(
    path: Path, index: Mapping[str, Any], suffixes: tuple[str, ...] = SUFFIXES
) -> Index:
    """What an index says that was read from `path`.

    Raises InvalidWeightsError for anything but plain names of shards.
    """
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise InvalidWeightsError(f"{path}: no weight_map: this is not an index of weights")
    check_names(path, weight_map)
    if len(shards := set(map(str, weight_map.values()))) > limits.SHARDS.most:
        raise InvalidWeightsError(limits.SHARDS.refusal(path, len(shards)))
    for name, shard in weight_map.items():
        if not is_plain_shard_name(shard, suffixes):
            raise InvalidWeightsError(
                f"{path}: tensor {short(name)} points to {short(shard)}; a shard is a plain file"
                f" name that ends in {' or '.join(suffixes)}"
            )
    metadata = index.get("metadata")
    claims = metadata if isinstance(metadata, dict) else {}
    return Index(
        weight_map,
        _claim(claims.get("total_size")),  # some older tools wrote a float
        _claim(claims.get("total_parameters")),
    )


def _claim(value: object) -> int | None:
    """What the index says of all tensors together; None for what is no size of anything."""
    number = whole(value)
    return number if number is not None and abs(number) <= limits.NUMBER.most else None


def is_plain_shard_name(name: Any, suffixes: tuple[str, ...] = SUFFIXES) -> bool:
    """Whether `name` is a bare file name of weights under POSIX and Windows rules alike."""
    # Halves of surrogate pairs, which JSON can hold, are in no file's name.
    allowed = r"[^/\\:\x00-\x1f\ud800-\udfff]+"
    plain = isinstance(name, str) and re.fullmatch(allowed, name) is not None
    return plain and name.endswith(suffixes) and name not in suffixes


def inside(folder: Path, shard: str) -> Path:
    """The shard's path, unless a link leads out of the folder and of its own Hub cache.

    Raises HeadcountError then, and for links in a loop.
    """
    path = folder / shard
    if not path.is_symlink():  # a plain name in the folder: nothing to follow, for 191 shards
        return path
    try:
        real, home = path.resolve(), folder.resolve()
    except (RuntimeError, OSError) as error:  # RuntimeError: a loop, before Python 3.13
        raise HeadcountError(f"{path}: cannot be read: its links lead nowhere") from error
    cache_blobs = home.parent.parent / "blobs"  # models--org--name/{snapshots/<rev>/, blobs/}
    if real.is_relative_to(home) or real.is_relative_to(cache_blobs):
        return path
    raise HeadcountError(
        f"{path}: links to {real}, outside the model's folder: copy the file there"
    )
