"""Headers of safetensors files, read without the library: 8 bytes of length, JSON, nothing else.

Accepts what the reference parser accepts (safetensors, `tensor.rs`), with two stricter rules: one
name may not stand twice, and a header is at most 32 MiB (the reference allows 100 MB, which takes
a Python program a gigabyte to parse).
"""

import json
import struct
from collections.abc import Collection
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any, TypeGuard

from headcount.model import limits
from headcount.model.dtypes import SAFETENSORS_BITS
from headcount.model.errors import InvalidConfigError, InvalidWeightsError, short

from .identity import FileIdentity, ReadFile
from .json_file import open_bytes, parse_json


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorInfo:
    """One stored tensor. `offsets` are absolute positions in `file`, a name inside its folder."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    offsets: tuple[int, int]

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.offsets[1] - self.offsets[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class FileHeader:
    """The header of one file: its tensors in the order of their bytes, and `__metadata__`.

    `read` is the open file that it was read from, with the header's bytes; None where that is no
    file of safetensors on this disk.
    """

    path: Path
    tensors: tuple[TensorInfo, ...]
    metadata: dict[str, str]
    data_start: int
    size: int
    read: ReadFile | None = None


def read_header(path: Path) -> FileHeader:
    """The header of a safetensors file. Raises InvalidWeightsError; reads no tensor."""
    with open_bytes(path) as file:
        identity = FileIdentity.of(file.fileno())
        start = file.read(8)
        raw = file.read(header_length(path, start, identity.size))
    header = parse_header(path, raw, identity.size)
    return replace(header, read=ReadFile(path=path, identity=identity, start=start + raw))


def parse_header(path: Path, raw: bytes, size: int) -> FileHeader:
    """The header of a file of `size` bytes from its JSON, which follows the 8 bytes of length.

    `path` is how messages name the file: it is not opened. Raises InvalidWeightsError.
    """
    entries = _entries(path, raw)
    metadata = entries.pop("__metadata__", None)
    check_names(path, entries)
    data_start = 8 + len(raw)
    return FileHeader(
        path=path,
        tensors=_tensors(path, entries, data_start, size),
        metadata=_metadata(path, metadata),
        data_start=data_start,
        size=size,
    )


def _entries(path: Path, raw: bytes) -> dict[str, Any]:
    """The header's JSON, without what Python's parser lets through: a byte-order mark, and halves
    of surrogate pairs."""
    if raw.startswith(b"\xef\xbb\xbf"):
        raise InvalidWeightsError(f"{path}: header: begins with a byte-order mark")
    try:
        entries = parse_json(raw, f"{path}: header")
        if b"\\u" in raw:
            json.dumps(entries, ensure_ascii=False).encode()
    except InvalidConfigError as error:
        raise InvalidWeightsError(str(error)) from error
    except UnicodeEncodeError as error:
        raise InvalidWeightsError(
            f"{path}: header: a string holds half of a surrogate pair"
        ) from error
    return entries


def check_names(path: Path, names: Collection[str]) -> None:
    """Raises InvalidWeightsError for too many names of tensors, or for one that is too long."""
    if len(names) > limits.TENSORS.most:
        raise InvalidWeightsError(limits.TENSORS.refusal(path, len(names)))
    longest = max(names, key=len, default="")
    if len(longest) > limits.NAME_CHARACTERS.most:
        raise InvalidWeightsError(
            limits.NAME_CHARACTERS.refusal(f"{path}: {short(longest)}", len(longest))
        )


def header_length(path: Path, start: bytes, size: int) -> int:
    """Bytes of JSON that the first 8 bytes of a file of `size` bytes announce.

    Raises InvalidWeightsError for what cannot be, and names the usual impostors.
    """
    if start.startswith(b"version "):
        raise InvalidWeightsError(
            f"{path}: is a Git LFS pointer, not weights: run `git lfs pull` in that folder"
        )
    if start.lower().startswith((b"<!docty", b"<html")):
        raise InvalidWeightsError(
            f"{path}: is an HTML page, not weights: the download went wrong, get the file again"
        )
    for magic, kind in ((b"PK\x03\x04", "a zip archive (a torch .bin?)"), (b"GGUF", "GGUF")):
        if start.startswith(magic):
            raise InvalidWeightsError(f"{path}: is {kind}, not safetensors: rename it")
    if len(start) < 8:
        raise InvalidWeightsError(f"{path}: {size} bytes are too few for a safetensors file")
    length: int = struct.unpack("<Q", start)[0]
    if length > size - 8:
        raise InvalidWeightsError(
            f"{path}: not safetensors, or cut short: the header claims {length:,} bytes,"
            f" the file has {size:,}"
        )
    if length > limits.HEADER_BYTES.most:
        raise InvalidWeightsError(limits.HEADER_BYTES.refusal(path, length))
    return length


def _metadata(path: Path, value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
        raise InvalidWeightsError(f"{path}: __metadata__ must map names to strings")
    return value


def _tensors(path: Path, entries: dict[str, Any], start: int, size: int) -> tuple[TensorInfo, ...]:
    tensors = [_tensor(path, name, entry, start) for name, entry in entries.items()]
    tensors.sort(key=lambda tensor: tensor.offsets)
    end = start
    for tensor in tensors:
        if tensor.offsets[0] != end:
            raise InvalidWeightsError(
                f"{path}: tensor {short(tensor.name)} begins at byte {tensor.offsets[0]:,},"
                f" the one before it ends at {end:,}: a hole or an overlap"
            )
        end = tensor.offsets[1]
    if end != size:
        what = "cut short" if end > size else "followed by bytes that belong to no tensor"
        raise InvalidWeightsError(f"{path}: {what}: tensors end at {end:,}, the file at {size:,}")
    return tuple(tensors)


def _tensor(path: Path, name: str, entry: Any, start: int) -> TensorInfo:
    if not isinstance(entry, dict):
        raise InvalidWeightsError(f"{path}: tensor {short(name)}: an object is expected")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in SAFETENSORS_BITS:
        raise InvalidWeightsError(f"{path}: tensor {short(name)}: unknown dtype {short(dtype)}")
    if not _naturals(shape) or not _naturals(offsets) or len(offsets) != 2:
        raise InvalidWeightsError(
            f"{path}: tensor {short(name)}: shape {short(shape)} or data_offsets"
            f" {short(offsets)} is not valid"
        )
    bits = _bits(shape, SAFETENSORS_BITS[dtype])
    if bits is None:
        raise InvalidWeightsError(
            f"{path}: tensor {short(name)}: {dtype} {short(shape)} is beyond 2^64 bits"
        )
    if bits % 8 or offsets[1] - offsets[0] != bits // 8:
        raise InvalidWeightsError(
            f"{path}: tensor {short(name)}: {dtype} {short(shape)} takes {-(-bits // 8):,} bytes,"
            f" the header gives it {offsets[1] - offsets[0]:,}"
        )
    return TensorInfo(
        name=name,
        dtype=dtype,
        shape=tuple(shape),
        file=path.name,
        offsets=(start + offsets[0], start + offsets[1]),
    )


def _bits(shape: list[int], width: int) -> int | None:
    """Bits of a tensor; None where a product of the first sizes leaves 64 bits, even if a later
    size is 0: the reference multiplies from left to right, and checks."""
    total = 1
    for size in (*shape, width):
        total *= size
        if total >= 2**64:
            return None
    return total


def _naturals(value: Any) -> TypeGuard[list[int]]:
    """Whether `value` is a list of integers in [0, 2^64): bool and float are not integers."""
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 2**64 for n in value)
