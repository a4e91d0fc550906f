"""Checkpoints that torch.save wrote (.bin, .pt, .pth): names, shapes and imports, not values.

A zip archive (torch >= 1.6) holds `NAME/data.pkl` and one member per storage; an older file is a
sequence of pickles followed by the bytes. Either is read by walking opcodes. `offsets` of a tensor
are positions inside its storage.
"""

import io
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile, ZipFile

from ..dtypes import SAFETENSORS_BITS
from ..errors import InvalidWeightsError
from .json_file import open_regular
from .pickle_walk import StoredTensor, is_harmless, walk
from .safetensors import FileHeader, TensorInfo

MAX_PICKLE_BYTES = 32 * 2**20
MAX_DIRECTORY_BYTES = 32 * 2**20
MAX_RATIO = 100  # of compression; torch does not compress
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
    with os.fdopen(open_regular(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
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
    return PickleFile(
        header=FileHeader(path=path, tensors=tensors, metadata={}, data_start=0, size=size),
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
    _check_directory(path, file, size)
    try:
        with ZipFile(file) as archive:
            sizes = {info.filename: info.file_size for info in archive.infolist()}
            pickles = [name for name in sizes if name.rpartition("/")[2] == "data.pkl"]
            if len(pickles) != 1:
                raise InvalidWeightsError(
                    f"{path}: a zip archive with {len(pickles)} data.pkl: not a checkpoint"
                )
            info = archive.getinfo(pickles[0])
            if info.file_size > MAX_PICKLE_BYTES or info.file_size > MAX_RATIO * max(
                info.compress_size, 1
            ):
                raise InvalidWeightsError(
                    f"{path}: {info.filename} claims {info.file_size:,} bytes, packed in"
                    f" {info.compress_size:,}: too much to read"
                )
            data = archive.open(info).read(MAX_PICKLE_BYTES)
    except (BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError, OSError) as error:
        raise InvalidWeightsError(f"{path}: a broken zip archive: {error}") from error
    except Exception as error:  # zlib, lzma and bz2 have errors of their own
        if isinstance(error, InvalidWeightsError):
            raise
        raise InvalidWeightsError(f"{path}: a broken zip archive: {error}") from error
    found = walk(io.BytesIO(data), f"{path}: {info.filename}")
    folder = pickles[0].removesuffix("data.pkl") + "data/"
    tensors = _tensors(path, found.value)
    for name, tensor in tensors.items():
        _check_storage(path, name, tensor, sizes.get(folder + tensor.storage.key))
    return found.imports, tuple(_info(path, name, tensor) for name, tensor in tensors.items())


def _check_directory(path: Path, file: IO[bytes], size: int) -> None:
    """zipfile reads the whole directory at once: its length is looked at before."""
    tail_size = min(size, 2**16 + 256)
    file.seek(size - tail_size)
    tail = file.read(tail_size)
    file.seek(0)
    end = tail.rfind(b"PK\x05\x06")
    if end < 0 or len(tail) < end + 22:
        raise InvalidWeightsError(f"{path}: cut short: a zip archive without its directory")
    length: int = struct.unpack_from("<I", tail, end + 12)[0]
    big = tail.rfind(b"PK\x06\x06")
    if length == 0xFFFFFFFF and 0 <= big <= len(tail) - 56:
        length = struct.unpack_from("<Q", tail, big + 40)[0]
    if length > min(size, MAX_DIRECTORY_BYTES):
        raise InvalidWeightsError(f"{path}: a zip directory of {length:,} bytes: too much to read")


def _read_legacy(
    path: Path, file: IO[bytes], *, legacy: bool
) -> tuple[tuple[str, ...], tuple[TensorInfo, ...]]:
    """Magic number, version and system, then the object; or one pickle of another program."""
    data = io.BytesIO(file.read(MAX_PICKLE_BYTES))
    imports: dict[str, None] = {}
    value: Any = None
    for _ in range(4 if legacy else 1):
        found = walk(data, str(path))
        imports |= dict.fromkeys(found.imports)
        value = found.value
    tensors = _tensors(path, value)
    for name, tensor in tensors.items():
        bits = SAFETENSORS_BITS[tensor.storage.dtype or "U8"]
        _check_storage(path, name, tensor, tensor.storage.elements * bits // 8)
    return tuple(imports), tuple(_info(path, name, tensor) for name, tensor in tensors.items())


def _tensors(path: Path, value: Any) -> Mapping[str, StoredTensor]:
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
    if len(tensor.shape) != len(tensor.stride) or len(tensor.shape) > 64:
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
