"""GGUF files, read without a library: key-values and tensor directory, bounded at every step.

The format: ggml/docs/gguf.md. Counts and lengths are a stranger's: each is held against the bytes
that are left before anything is read or allocated for it. Long arrays, such as the tokens, are
skipped and only counted.
"""

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, NoReturn, Protocol

from headcount.model import limits
from headcount.model.errors import InvalidWeightsError

from .ggml_types import GGML_TYPES
from .json_file import open_bytes
from .safetensors import FileHeader, TensorInfo

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?"} | {
    10: "Q",
    11: "q",
    12: "d",
}
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True, slots=True)
class Skipped:
    """An array or string that was too long to keep."""

    count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class GgufFile:
    """What stands in front of the tensors' bytes. Values are int, float, bool, str, tuples of
    them, or Skipped."""

    version: int
    metadata: Mapping[str, Any]
    header: FileHeader


def read_gguf(path: Path) -> GgufFile:
    """The key-values and the tensor directory of a GGUF file. Raises InvalidWeightsError."""
    with open_bytes(path, 2**20) as file:
        return parse_gguf(file, path, os.fstat(file.fileno()).st_size)


class Readable(Protocol):
    """What a reader needs of a file: one on disk, or a remote one."""

    def read(self, count: int, /) -> bytes: ...

    def seek(self, offset: int, whence: int = ..., /) -> int: ...


def parse_gguf(file: Readable, path: Path, size: int) -> GgufFile:
    """The same of an open file of `size` bytes; `path` names it in messages."""
    return _Reader(file, path, size).read()


class _Reader:
    """A position in a file of known size, and what the format allows from there."""

    def __init__(self, file: Readable, path: Path, size: int) -> None:
        self.file, self.path, self.size = file, path, size
        self.position = 0
        self.strings = 0
        self.kept = 0

    def fail(self, what: str) -> NoReturn:
        raise InvalidWeightsError(f"{self.path}: {what} (byte {self.position:,})")

    def take(self, count: int, what: str) -> bytes:
        self.expect(count, what)
        data = self.file.read(count)
        if len(data) != count:
            self.fail(f"{what}: the file became shorter")
        self.position += count
        return data

    def expect(self, count: int, what: str) -> None:
        left = self.size - self.position
        if count > left:
            self.fail(
                f"cut short, or damaged: {what} takes {count:,} bytes, {max(left, 0):,} are left"
            )

    def skip(self, count: int, what: str) -> None:
        self.expect(count, what)
        self.file.seek(count, os.SEEK_CUR)
        self.position += count

    def number(self, form: str, what: str) -> Any:
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form), what))[0]

    def read(self) -> GgufFile:
        version = self.start()
        tensor_count, key_count = self.number("Q", "count"), self.number("Q", "count")
        for limit, count in ((limits.GGUF_KEYS, key_count), (limits.GGUF_TENSORS, tensor_count)):
            if count > limit.most:
                self.fail(limit.refusal("claims to hold", count))
        metadata: dict[str, Any] = {}
        for _ in range(key_count):
            key = self.text("key", limits.GGUF_KEY_BYTES.most)
            if not key or key in metadata:
                self.fail(f"the key {key!r} is empty or stands twice")
            metadata[key] = self.value(self.number("I", key), key, 0)
        alignment = self.alignment(metadata)
        entries = [self.entry() for _ in range(tensor_count)]
        data_start = -(-self.position // alignment) * alignment
        return GgufFile(
            version=version,
            metadata=metadata,
            header=FileHeader(
                path=self.path,
                tensors=self.placed(entries, data_start, alignment),
                metadata={},
                data_start=data_start,
                size=self.size,
            ),
        )

    def start(self) -> int:
        magic = self.take(min(4, self.size), "magic")
        if magic != b"GGUF":
            if magic == b"vers":
                self.fail("is a Git LFS pointer, not weights: run `git lfs pull` in that folder")
            self.fail(f"is not GGUF: it begins with {magic!r}")
        version: int = self.number("I", "version")
        if version in (2, 3):
            return version
        if version & 0xFFFF == 0:
            self.fail("is a big-endian GGUF file: convert it to little-endian")
        self.fail(f"is GGUF version {version}; versions 2 and 3 are read")

    def text(self, what: str, limit: int) -> str:
        length = self.number("Q", what)
        if length > limit:
            self.expect(length, what)
            self.fail(f"{what} of {length:,} bytes; at most {limit:,}")
        try:
            return self.take(length, what).decode()
        except UnicodeDecodeError:
            self.fail(f"{what} is not UTF-8")

    def value(self, kind: int, key: str, depth: int) -> Any:
        if kind in _SCALARS:
            return self.number(_SCALARS[kind], key)
        if kind == _STRING:
            return self.string(key)
        if kind == _ARRAY:
            return self.array(key, depth + 1)
        self.fail(f"{key}: unknown type of value {kind}")

    def keeps(self, size: int) -> bool:
        """Whether there is room for a value of `size` bytes more."""
        self.kept += size
        return self.kept <= limits.GGUF_KEPT_BYTES.most

    def string(self, key: str) -> Any:
        length = self.number("Q", key)
        if length > limits.GGUF_STRING_BYTES.most or not self.keeps(length):
            self.skip(length, key)
            return Skipped(length)
        return self.take(length, key).decode(errors="replace")

    def array(self, key: str, depth: int) -> Any:
        kind, count = self.number("I", key), self.number("Q", key)
        if depth > limits.GGUF_DEPTH.most:
            self.fail(limits.GGUF_DEPTH.refusal(key))
        if kind in _SCALARS:
            size = count * struct.calcsize("<" + _SCALARS[kind])
            if count > limits.GGUF_LIST_ITEMS.most or not self.keeps(8 * count):
                self.skip(size, key)
                return Skipped(count)
            return struct.unpack(f"<{count}{_SCALARS[kind]}", self.take(size, key))
        if kind not in (_STRING, _ARRAY):
            self.fail(f"{key}: unknown type of value {kind}")
        self.expect(8 * count, key)
        self.strings += count if kind == _STRING else 100 * count  # a step each, and a dear one
        if self.strings > limits.GGUF_STRINGS.most:
            self.fail(limits.GGUF_STRINGS.refusal(key, self.strings))
        if kind == _STRING and (count > limits.GGUF_LIST_ITEMS.most or not self.keeps(64 * count)):
            self.skip_strings(count, key)
            return Skipped(count)
        items = tuple(self.value(kind, key, depth) for _ in range(count))
        return items if count <= limits.GGUF_LIST_ITEMS.most else Skipped(count)

    def skip_strings(self, count: int, key: str) -> None:
        """Steps over `count` strings, a block of the file at a time: vocabularies are long."""
        length_at = struct.Struct("<Q").unpack_from
        block, at, base = b"", 0, self.position  # `base` is the position of block[0]
        for _ in range(count):
            if at + 8 > len(block):
                self.position = base + at
                self.expect(8, key)
                self.file.seek(self.position)
                block, at, base = self.file.read(2**20), 0, self.position
                if len(block) < 8:
                    self.fail(f"{key}: the file became shorter")
            at += 8 + length_at(block, at)[0]
        self.position = base + at
        self.expect(0, key)
        self.file.seek(self.position)

    def alignment(self, metadata: Mapping[str, Any]) -> int:
        value = metadata.get("general.alignment", 32)
        most = limits.GGUF_ALIGNMENT.most
        if type(value) is not int or not 0 < value <= most or value & (value - 1):
            self.fail(f"general.alignment {value!r} is not a power of two up to {most:,}")
        return value

    def entry(self) -> tuple[str, tuple[int, ...], int, int]:
        """Name, dimensions (the fastest first), type number and offset of one tensor."""
        name = self.text("a tensor's name", limits.GGUF_NAME_BYTES.most)
        count = self.number("I", name)
        if count > limits.GGUF_DIMENSIONS.most:
            self.fail(
                f"tensor {name!r} has {count:,} dimensions; at most {limits.GGUF_DIMENSIONS.most}"
            )
        dims = struct.unpack(f"<{count}Q", self.take(8 * count, name))
        kind, offset = self.number("I", name), self.number("Q", name)
        if kind not in GGML_TYPES:
            self.fail(f"tensor {name!r}: unknown type {kind}")
        if prod(dims) >= 2**63 or any(dim >= 2**63 for dim in dims):
            self.fail(f"tensor {name!r}: dimensions {list(dims)} are too large")
        if dims and dims[0] % GGML_TYPES[kind][1]:
            self.fail(f"tensor {name!r}: rows of {dims[0]:,} are no whole blocks of its type")
        return name, dims, kind, offset

    def placed(
        self, entries: list[tuple[str, tuple[int, ...], int, int]], start: int, alignment: int
    ) -> tuple[TensorInfo, ...]:
        """The tensors where the format wants them: one behind the other, each aligned."""
        tensors: dict[str, TensorInfo] = {}
        expected = 0
        for name, dims, kind, offset in entries:
            type_name, block, block_bytes = GGML_TYPES[kind]
            size = prod(dims) // block * block_bytes
            if name in tensors:
                self.fail(f"the tensor {name!r} stands twice")
            if offset != expected:
                self.fail(f"tensor {name!r} is at offset {offset:,}, it should be at {expected:,}")
            begin = start + offset
            if begin + size > self.size:
                self.fail(f"cut short: tensor {name!r} ends at byte {begin + size:,}")
            expected = -(-(offset + size) // alignment) * alignment
            tensors[name] = TensorInfo(
                name=name,
                dtype=type_name,
                shape=tuple(reversed(dims)),
                file=self.path.name,
                offsets=(begin, begin + size),
            )
        return tuple(tensors.values())
