"""Pickle files made in the test: a small assembler of opcodes, and torch's zip around them."""

import pickle
import struct
import zipfile
from collections.abc import Mapping
from math import prod
from pathlib import Path

MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
STORAGE = {"F32": ("FloatStorage", 4), "BF16": ("BFloat16Storage", 2), "I64": ("LongStorage", 8)}


def word(text: str) -> bytes:
    return b"X" + struct.pack("<I", len(text.encode())) + text.encode()


def integer(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def glob(name: str) -> bytes:
    module, _, last = name.rpartition(".")
    return b"c" + f"{module}\n{last}\n".encode()


def numbers(values: tuple[int, ...]) -> bytes:
    return b"(" + b"".join(integer(value) for value in values) + b"t"


def tensor(key: str, dtype: str, shape: tuple[int, ...], size: int | None = None) -> bytes:
    """A contiguous tensor over the whole of storage `key`."""
    elements = prod(shape) if size is None else size
    kind = glob(f"torch.{STORAGE[dtype][0]}")
    identity = b"(" + word("storage") + kind + word(key) + word("cpu") + integer(elements) + b"tQ"
    strides = tuple(prod(shape[i + 1 :]) for i in range(len(shape)))
    rest = integer(0) + numbers(shape) + numbers(strides) + b"\x89" + ordered() + b"t"
    return glob("torch._utils._rebuild_tensor_v2") + b"(" + identity + rest + b"R"


def ordered() -> bytes:
    return glob("collections.OrderedDict") + b")R"


def state_dict(
    shapes: Mapping[str, tuple[int, ...]], dtype: str = "F32", before: bytes = b""
) -> bytes:
    items = b"".join(
        word(name) + tensor(str(i), dtype, shape) for i, (name, shape) in enumerate(shapes.items())
    )
    return b"\x80\x02" + before + ordered() + b"(" + items + b"u."


def write_bin(
    path: Path,
    shapes: Mapping[str, tuple[int, ...]],
    dtype: str = "F32",
    before: bytes = b"",
    data: bytes | None = None,
) -> Path:
    """What torch.save writes since 1.6; `before` are opcodes that stand in front of the dict."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", data or state_dict(shapes, dtype, before))
        for i, shape in enumerate(shapes.values()):
            archive.writestr(f"archive/data/{i}", bytes(prod(shape) * STORAGE[dtype][1]))
        archive.writestr("archive/version", "3\n")
    return path


def legacy_bytes(data: bytes, keys: bytes = pickle.dumps([], 2)) -> bytes:
    """What torch.save wrote before 1.6: magic, version, system, the object, keys."""
    return (
        MAGIC + b"".join(pickle.dumps(v, 2) for v in (1001, {"little_endian": True})) + data + keys
    )


EVIL = glob("posix.system") + b"(" + word("touch MARKER") + b"tR0"
