"""GGUF files made in the test, byte for byte."""

import struct
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from headcount.sources.ggml_types import GGML_TYPES

TYPE_NUMBERS = {name: number for number, (name, _, _) in GGML_TYPES.items()}
Tensors = Mapping[str, tuple[str, tuple[int, ...]]]  # name -> type, (rows, columns)

LLAMA: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.block_count": 3,
    "llama.embedding_length": 256,
    "llama.context_length": 64,
    "llama.attention.head_count": 8,
    "llama.attention.head_count_kv": 2,
    "tokenizer.ggml.tokens": [f"t{i}" for i in range(40)],
}


def key_values(architecture: str, layers: int = 6, **values: Any) -> dict[str, Any]:
    """Key-values of `architecture` as they are read; `__` stands for a dot, a list for one per
    layer. None leaves a key out."""
    own = {
        "block_count": layers,
        "embedding_length": 256,
        "attention.head_count": 8,
        **{name.replace("__", "."): value for name, value in values.items()},
    }
    return {"general.architecture": architecture} | {
        f"{architecture}.{name}": tuple(value) if isinstance(value, list) else value
        for name, value in own.items()
        if value is not None
    }


def text(value: str | bytes) -> bytes:
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value_bytes(value: Any, *, kind: bool = True) -> bytes:
    """A key's value with its type in front: uint32, float32, bool, string or a list of one."""
    if isinstance(value, list):
        first = value_bytes(value[0])[:4] if value else struct.pack("<I", 4)
        items = b"".join(value_bytes(item, kind=False) for item in value)
        number, body = 9, first + struct.pack("<Q", len(value)) + items
    elif isinstance(value, bool):
        number, body = 7, bytes([value])
    elif isinstance(value, int):
        number, body = 4, struct.pack("<I", value)
    elif isinstance(value, float):
        number, body = 6, struct.pack("<f", value)
    else:
        number, body = 8, text(value)
    return struct.pack("<I", number) * kind + body


def key(name: str, value: Any) -> bytes:
    return text(name) + value_bytes(value)


def entry(name: str, dims: tuple[int, ...], kind: int, offset: int) -> bytes:
    """A line of the tensor directory; dims with the fastest first."""
    dimensions = struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
    return text(name) + dimensions + struct.pack("<IQ", kind, offset)


def start(tensors: int, keys: int, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys)


def gguf_bytes(metadata: Mapping[str, Any], tensors: Tensors, alignment: int = 32) -> bytes:
    """A whole file, zeros for the tensors."""
    header, size = gguf_header(metadata, tensors, alignment)
    return header + bytes(size)


def gguf_header(
    metadata: Mapping[str, Any], tensors: Tensors, alignment: int = 32
) -> tuple[bytes, int]:
    """What stands before the tensors, and their bytes."""
    out = start(len(tensors), len(metadata))
    out += b"".join(key(name, value) for name, value in metadata.items())
    offset = 0
    for name, (kind, shape) in tensors.items():
        _, block, block_bytes = GGML_TYPES[TYPE_NUMBERS[kind]]
        out += entry(name, shape[::-1], TYPE_NUMBERS[kind], offset)
        size = prod(shape) // block * block_bytes
        offset += -(-size // alignment) * alignment
    out += bytes(-len(out) % alignment)
    return out, offset


def llama_tensors(
    layers: int = 3, hidden: int = 256, kv: int = 64, kind: str = "Q4_K"
) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The tensors of the model that LLAMA describes."""
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {"token_embd.weight": ("Q6_K", (40, hidden))}
    for i in range(layers):
        tensors |= {
            f"blk.{i}.attn_norm.weight": ("F32", (hidden,)),
            f"blk.{i}.attn_q.weight": (kind, (hidden, hidden)),
            f"blk.{i}.attn_k.weight": (kind, (kv, hidden)),
            f"blk.{i}.attn_v.weight": ("Q6_K", (kv, hidden)),
            f"blk.{i}.attn_output.weight": (kind, (hidden, hidden)),
            f"blk.{i}.ffn_up.weight": (kind, (512, hidden)),
            f"blk.{i}.ffn_down.weight": (kind, (hidden, 512)),
        }
    return tensors | {"output_norm.weight": ("F32", (hidden,)), "rope_freqs.weight": ("F32", (16,))}


def write_gguf(
    path: Path, metadata: Mapping[str, Any] = LLAMA, tensors: Tensors | None = None
) -> Path:
    path.write_bytes(gguf_bytes(metadata, llama_tensors() if tensors is None else tensors))
    return path
