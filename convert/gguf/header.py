"""The start of a GGUF file: magic, key-values, the directory of tensors (ggml's docs/gguf.md)."""

import struct
from collections.abc import Iterable, Iterator
from typing import Any

from headcount.sources.ggml_types import GGML_TYPES

from .gguf_file import GgufFile, GgufTensor, KeyValue, padding

_MAGIC, _VERSION = b"GGUF", 3
# kind -> number of the type of value, and how struct packs one
_SCALARS = {"u32": (4, "<I"), "i32": (5, "<i"), "f32": (6, "<f"), "bool": (7, "<?")}
_STRING, _ARRAY = 8, 9
_NUMBERS = {name: number for number, (name, _, _) in GGML_TYPES.items()}


def header_bytes(file: GgufFile) -> bytes:
    """All that stands in front of the first tensor, with the zeros that align it."""
    counts = struct.pack("<IQQ", _VERSION, len(file.tensors), len(file.metadata))
    entries = zip(file.tensors, file.offsets(), strict=True)
    start = b"".join(
        (
            *(_MAGIC, counts),
            *(part for one in file.metadata for part in _key_value(one)),
            *(part for tensor, offset in entries for part in _entry(tensor, offset)),
        )
    )
    return start + bytes(padding(len(start)))


def _key_value(one: KeyValue) -> Iterator[bytes]:
    yield _string(one.key)
    if one.kind.startswith("["):
        kind = one.kind.strip("[]")
        yield struct.pack("<IIQ", _ARRAY, _number(kind), len(one.value))
        yield from _values(kind, one.value)
    else:
        yield struct.pack("<I", _number(one.kind))
        yield from _values(one.kind, (one.value,))


def _number(kind: str) -> int:
    return _STRING if kind == "str" else _SCALARS[kind][0]


def _values(kind: str, values: Iterable[Any]) -> Iterator[bytes]:
    for value in values:
        yield _string(value) if kind == "str" else struct.pack(_SCALARS[kind][1], value)


def _string(text: str) -> bytes:
    data = text.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(data)) + data


def _entry(tensor: GgufTensor, offset: int) -> Iterator[bytes]:
    yield _string(tensor.name)
    dims = tuple(reversed(tensor.shape))
    yield struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
    yield struct.pack("<IQ", _NUMBERS[tensor.type], offset)
