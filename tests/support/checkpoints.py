"""Small checkpoints made in the test: safetensors files written by hand, byte for byte."""

import json
import struct
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

ITEM = {"F32": 4, "BF16": 2, "F16": 2, "U8": 1, "I32": 4, "F8_E4M3": 1}
Shapes = Mapping[str, tuple[int, ...]]

LLAMA_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "num_hidden_layers": 3,
    "vocab_size": 40,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
}


def header_bytes(header: Any) -> bytes:
    """The length and the JSON of a header, as the format has them."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text


def write_safetensors(path: Path, shapes: Shapes, dtype: str = "BF16") -> None:
    """Zeros of these shapes."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        size = prod(shape) * ITEM[dtype]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    path.write_bytes(header_bytes(header) + bytes(end))


def llama_shapes(config: Mapping[str, Any] = LLAMA_CONFIG) -> dict[str, tuple[int, ...]]:
    """The tensors of a Llama checkpoint, as save_pretrained names them."""
    h, heads = config["hidden_size"], config["num_attention_heads"]
    d = config.get("head_dim") or h // heads
    kv, ffn = config["num_key_value_heads"] * d, config["intermediate_size"]
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config["vocab_size"], h)}
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}"
        shapes |= {
            f"{layer}.self_attn.q_proj.weight": (heads * d, h),
            f"{layer}.self_attn.k_proj.weight": (kv, h),
            f"{layer}.self_attn.v_proj.weight": (kv, h),
            f"{layer}.self_attn.o_proj.weight": (h, heads * d),
            f"{layer}.mlp.gate_proj.weight": (ffn, h),
            f"{layer}.mlp.up_proj.weight": (ffn, h),
            f"{layer}.mlp.down_proj.weight": (h, ffn),
            f"{layer}.input_layernorm.weight": (h,),
            f"{layer}.post_attention_layernorm.weight": (h,),
        }
    return shapes | {"model.norm.weight": (h,), "lm_head.weight": (config["vocab_size"], h)}


def write_model(
    folder: Path, config: Mapping[str, Any], shapes: Shapes, dtype: str = "BF16"
) -> Path:
    """A folder with config.json and model.safetensors."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / "model.safetensors", shapes, dtype)
    return folder


def write_sharded(folder: Path, config: Mapping[str, Any], shapes: Shapes, shards: int = 2) -> Path:
    """A folder with config.json, `shards` files and their index."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    names = list(shapes)
    weight_map: dict[str, str] = {}
    for number in range(shards):
        file = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        part = {name: shapes[name] for name in names[number::shards]}
        write_safetensors(folder / file, part)
        weight_map |= dict.fromkeys(part, file)
    total = sum(prod(shape) * 2 for shape in shapes.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


Tensors = Mapping[str, tuple[str, tuple[int, ...]]]
BITS = {
    "F64": 64,
    "I64": 64,
    "F4": 4,
    "I8": 8,
    "I16": 16,
    "U32": 32,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
} | {name: 8 * size for name, size in ITEM.items()}


def typed(shapes: Shapes, dtype: str = "BF16") -> dict[str, tuple[str, tuple[int, ...]]]:
    """The same tensors, each with its element type."""
    return {name: (dtype, tuple(shape)) for name, shape in shapes.items()}


def typed_bytes(tensors: Tensors, metadata: Mapping[str, str] | None = None) -> bytes:
    """A safetensors file of zeros of these types and shapes."""
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    end = 0
    for name, (dtype, shape) in tensors.items():
        size = prod(shape) * BITS[dtype] // 8
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    return header_bytes(header) + bytes(end)


def write_typed(
    folder: Path,
    config: Mapping[str, Any],
    tensors: Tensors,
    name: str = "model.safetensors",
    metadata: Mapping[str, str] | None = None,
) -> Path:
    """A folder with config.json and a file of tensors of several types."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / name).write_bytes(typed_bytes(tensors, metadata))
    return folder
