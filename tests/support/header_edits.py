"""Safetensors files whose header is changed in place; values are a hole that nothing reads."""

import json
import struct
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

from checkpoints import BITS, header_bytes

Headers = dict[str, tuple[str, list[int]]]  # name -> element type, shape


def rewrite(path: Path, change: Callable[[Headers], None]) -> None:
    """The file with its header changed, and a hole for its values."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    metadata = header.pop("__metadata__")
    tensors: Headers = {name: (entry["dtype"], entry["shape"]) for name, entry in header.items()}
    change(tensors)
    written: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, (dtype, shape) in tensors.items():
        size = prod(shape) * BITS[dtype] // 8
        written[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    with path.open("wb") as file:
        file.write(header_bytes(written))
        file.truncate(file.tell() + end)
