"""Checkpoints that torch.save wrote (.bin, .pt, .pth): names, shapes and imports, not values.

A zip archive (torch >= 1.6) holds `NAME/data.pkl` and one member per storage; an older file is a
sequence of pickles followed by the bytes. Either is read by walking opcodes. `offsets` of a tensor
are positions inside its storage.
"""

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile, ZipFile, ZipInfo

from headcount.model import limits
from headcount.model.dtypes import SAFETENSORS_BITS
from headcount.model.errors import InvalidWeightsError

from ..identity import FileIdentity, ReadFile
from ..json_file import open_bytes
from ..safetensors import FileHeader, TensorInfo, check_names
from .pickle_walk import StoredTensor, is_harmless, walk

_LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # torch's magic number, pickled
_NESTS = ("state_dict", "model_state_dict", "model", "module")


@dataclass(frozen=True, kw_only=True, slots=True)
class PickleFile:
    """`suspects` are the imports that a file of tensors has no need of. Without any tensor,
    the file holds something else, or holds them in a way that is not followed."""

    header: FileHeader
    imports: tuple[str, ...]
    suspects: tuple[str, ...]


def read_pickle(path: Path) -> PickleFile:
    """What a file of torch.save holds. Nothing in it is executed. Raises InvalidWeightsError."""
    with open_bytes(path) as file:
        identity = FileIdentity.of(file.fileno())
        size = identity.size
        start = file.read(16)
        file.seek(0)
        if start.startswith(b"PK\x03\x04"):
            imports, tensors = _read_zip(path, file, size)
        elif start[:1] == b"\x80":
            imports, tensors = _read_legacy(path, file, legacy=start.startswith(_LEGACY))
        else:
            raise InvalidWeightsError(
                f"{path}: neither a zip archive nor a pickle: torch.save did not write it"
                f"{_what_it_is(start)}"
            )
    read = ReadFile(path=path, identity=identity, start=b"")
    return PickleFile(
        header=FileHeader(
            path=path, tensors=tensors, metadata={}, data_start=0, size=size, read=read
        ),
        imports=imports,
        suspects=tuple(name for name in imports if not is_harmless(name)),
    )


def _what_it_is(start: bytes) -> str:
    if start.startswith(b"version "):
        return "; this is a Git LFS pointer: run `git lfs pull` in that folder"
    return "; this is GGUF: rename it" if start.startswith(b"GGUF") else ""


def _read_zip(
    path: Path, file: IO[bytes], size: int
) -> tuple[tuple[str, ...], tuple[TensorInfo, ...]]:
    try:
        with ZipFile(_Bounded(file, size)) as archive:
            members = {info.filename: info for info in archive.infolist()}
            name = _find_pickle(path, archive.namelist())
            data = _member(path, archive, members[name])
    except InvalidWeightsError:
        raise
    except Exception as error:  # of zipfile, of zlib, lzma and bz2, of an encrypted member
        raise InvalidWeightsError(
            f"{path}: a zip archive that is cut short or broken: {error}"
        ) from error
    found = walk(io.BytesIO(data), f"{path}: {name}")
    tensors = _tensors(found.value)
    check_names(path, tensors)
    for tensor_name, tensor in tensors.items():
        member = members.get(f"{name.removesuffix('data.pkl')}data/{tensor.storage.key}")
        _check_storage(path, tensor_name, tensor, None if member is None else member.file_size)
    return found.imports, tuple(_info(path, n, tensor) for n, tensor in tensors.items())


@dataclass(slots=True)
class _Bounded:
    """A file that zipfile may not read much of at once: it would, if a directory claims to be
    long, and keep a kilobyte for every entry."""

    file: IO[bytes]
    size: int

    def read(self, count: int = -1) -> bytes:
        left = self.size - self.file.tell()
        if (left if count < 0 else min(count, left)) > limits.PICKLE_BYTES.most // 8:
            raise BadZipFile(f"a directory of {left if count < 0 else count:,} bytes")
        return self.file.read(count)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self.file.seek(offset, whence)

    def tell(self) -> int:
        return self.file.tell()

    def seekable(self) -> bool:
        return True


def _find_pickle(path: Path, names: list[str]) -> str:
    """The one data.pkl. Where two members could be taken for it, two readers take two."""
    folded = [name.casefold() for name in names]
    found = [name for name in names if name.casefold().rpartition("/")[2] == "data.pkl"]
    if len(found) != 1 or len(set(folded)) != len(folded):
        raise InvalidWeightsError(
            f"{path}: a zip archive with {len(found)} data.pkl"
            f" and {len(folded) - len(set(folded))} names twice: not a checkpoint of torch.save"
        )
    if any(name.rpartition("/")[2] == "constants.pkl" for name in folded):
        raise InvalidWeightsError(
            f"{path}: a TorchScript archive: a program, which torch.load would load as one"
        )
    return found[0]


def _member(path: Path, archive: ZipFile, info: ZipInfo) -> bytes:
    packed = max(info.compress_size, 1)
    if info.file_size > limits.PICKLE_BYTES.most:
        raise InvalidWeightsError(limits.PICKLE_BYTES.refusal(path, info.file_size))
    if info.file_size > limits.PICKLE_RATIO.most * packed:
        where = f"{path}: {info.filename}, which claims {info.file_size:,} bytes"
        raise InvalidWeightsError(limits.PICKLE_RATIO.refusal(where, info.file_size // packed))
    with archive.open(info) as member:
        return b"".join(iter(lambda: member.read(2**16), b""))


def _read_legacy(
    path: Path, file: IO[bytes], *, legacy: bool
) -> tuple[tuple[str, ...], tuple[TensorInfo, ...]]:
    """Magic number, version, system, the object and its storages: torch loads five pickles. Of
    another program's file, one."""
    data = io.BytesIO(file.read(limits.PICKLE_BYTES.most))
    _refuse_tar(path, data.getbuffer()[:512].tobytes())
    imports: dict[str, None] = {}
    value: Any = None
    for number in range(5 if legacy else 1):
        found = walk(data, str(path))
        imports |= dict.fromkeys(found.imports)
        value = found.value if number in (0, 3) else value
    tensors = _tensors(value)
    check_names(path, tensors)
    for name, tensor in tensors.items():
        bits = SAFETENSORS_BITS[tensor.storage.dtype or "U8"]
        _check_storage(path, name, tensor, tensor.storage.elements * bits // 8)
    return tuple(imports), tuple(_info(path, name, tensor) for name, tensor in tensors.items())


def _refuse_tar(path: Path, block: bytes) -> None:
    """torch.load takes an old file for a tar archive first, and unpickles what lies in there."""
    from tarfile import HeaderError, TarInfo

    try:
        TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (HeaderError, ValueError):
        return
    raise InvalidWeightsError(f"{path}: a pickle and a tar archive at once: not a checkpoint")


def _tensors(value: Any) -> Mapping[str, StoredTensor]:
    """The tensors of a state dict, or of the one inside a training checkpoint."""
    found = dict(_of(value))
    for nest in _NESTS:
        if not found and isinstance(value, dict):
            found = dict(_of(value.get(nest)))
    return found


def _of(value: Any) -> Iterator[tuple[str, StoredTensor]]:
    if isinstance(value, dict):
        yield from ((k, v) for k, v in value.items() if isinstance(v, StoredTensor))


def _check_storage(path: Path, name: str, tensor: StoredTensor, size: int | None) -> None:
    """A tensor must lie inside its storage: torch would refuse it, or read past the end."""
    if size is None:
        raise InvalidWeightsError(f"{path}: tensor {name!r}: its storage is not in the archive")
    if len(tensor.shape) > limits.PICKLE_DIMENSIONS.most:
        where = f"{path}: tensor {name!r}"
        raise InvalidWeightsError(limits.PICKLE_DIMENSIONS.refusal(where, len(tensor.shape)))
    if len(tensor.shape) != len(tensor.stride):
        raise InvalidWeightsError(f"{path}: tensor {name!r}: shape and stride do not fit")
    steps = (n * (d - 1) for n, d in zip(tensor.stride, tensor.shape, strict=True))
    last = tensor.offset + (1 + sum(steps) if 0 not in tensor.shape else 0)
    needed = last * SAFETENSORS_BITS[tensor.dtype] // 8
    if needed > size:
        raise InvalidWeightsError(
            f"{path}: tensor {name!r} ends at byte {needed:,} of its storage, which has {size:,}"
        )


def _info(path: Path, name: str, tensor: StoredTensor) -> TensorInfo:
    width = SAFETENSORS_BITS[tensor.dtype] // 8
    start = tensor.offset * width
    return TensorInfo(
        name=name,
        dtype=tensor.dtype,
        shape=tensor.shape,
        file=path.name,
        offsets=(start, start + prod(tensor.shape) * width),
    )
