"""A checkpoint the size of Llama-3.1-405B: real headers over sparse files, which take no space."""

import json
from math import prod
from pathlib import Path

from checkpoints import header_bytes, llama_shapes

CONFIG = {
    **{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "bfloat16"},
    **{"hidden_size": 16384, "intermediate_size": 53248, "num_attention_heads": 128},
    **{"num_key_value_heads": 8, "num_hidden_layers": 126, "vocab_size": 128256},
    **{"max_position_embeddings": 131072, "tie_word_embeddings": False},
}
PARAMETERS = 405_853_388_800  # meta-llama/Llama-3.1-405B, as its index's total_size / 2


def make_shards(folder: Path, shards: int = 191, layers: int = 126) -> Path:
    """config.json, `shards` sparse shards in the order of the layers, and their index."""
    config = CONFIG | {"num_hidden_layers": layers}
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    shapes = llama_shapes(config)
    names: list[str] = list(shapes)
    weight_map: dict[str, str] = {}
    for number in range(shards):
        file = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        part = names[number * len(names) // shards : (number + 1) * len(names) // shards]
        header: dict[str, object] = {"__metadata__": {"format": "pt"}}
        end = 0
        for name in part:
            size = prod(shapes[name]) * 2
            entry = {"dtype": "BF16", "shape": shapes[name], "data_offsets": [end, end + size]}
            header[name] = entry
            end += size
        start = header_bytes(header)
        with (folder / file).open("wb") as out:
            out.write(start)
            out.truncate(len(start) + end)
        weight_map |= dict.fromkeys(part, file)
    total = sum(prod(shape) * 2 for shape in shapes.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder
