"""A Llama of Hugging Face's as a GGUF file in float32, for engines.py.

Written from llama.cpp's description of the format and of the `llama` architecture, whose rotary
embedding pairs neighbours: the rows of q and k, whose halves are paired in transformers, are put
in that order. The vocabulary is made up, since only ids are given to the engine.
"""

import importlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

TENSORS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
OUTER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
BYTES = 256


def write_gguf(folder: Path, path: Path) -> int:
    """Writes the model in `folder` to `path` and gives the size of its vocabulary."""
    gguf: Any = importlib.import_module("gguf")
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(path, "llama")
    add_config(writer, config)
    add_vocabulary(gguf, writer, config["vocab_size"])
    for file in sorted(folder.glob("*.safetensors")):
        for name, tensor in load_file(file).items():
            writer.add_tensor(*as_gguf(name, tensor.float(), config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return int(config["vocab_size"])


def add_config(writer: Any, config: dict[str, Any]) -> None:
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])


def add_vocabulary(gguf: Any, writer: Any, size: int) -> None:
    """The 256 bytes, which llama.cpp looks for, and made words."""
    tokens = [f"<0x{i:02X}>" if i < BYTES else f"w{i}" for i in range(size)]
    kinds = [gguf.TokenType.BYTE if i < BYTES else gguf.TokenType.NORMAL for i in range(size)]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * size)
    writer.add_token_types(kinds)
    writer.add_add_bos_token(False)


def as_gguf(name: str, tensor: torch.Tensor, config: dict[str, Any]) -> tuple[str, Any]:
    """The tensor's name there and its values."""
    stem, kind = name.rsplit(".", 1)
    if stem in OUTER:
        return f"{OUTER[stem]}.{kind}", tensor.numpy()
    _, _, index, part = stem.split(".", 3)
    if part in ("self_attn.q_proj", "self_attn.k_proj"):
        tensor = interleaved(tensor, config["head_dim"])
    return f"blk.{index}.{TENSORS[part]}.{kind}", tensor.numpy()


def interleaved(tensor: torch.Tensor, head_dim: int) -> torch.Tensor:
    """Rows (0, d/2, 1, d/2 + 1, ...) of each head of d rows."""
    halves = tensor.reshape(-1, 2, head_dim // 2, *tensor.shape[1:])
    return halves.transpose(1, 2).reshape(tensor.shape)
