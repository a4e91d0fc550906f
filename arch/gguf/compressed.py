"""DeepSeek-V4's attention: a window, and compressed entries of what lies before it.

llama.cpp: src/models/deepseek4.cpp and src/llama-kv-cache-dsv4.cpp.
"""

from headcount.model import limits
from headcount.model.errors import InvalidConfigError
from headcount.model.mixers import CompressedAttention
from headcount.model.spec import Layer

from .keys import Keys

_OVERLAPPING = 4  # DSV4_CSA_RATIO: entries that overlap, and that an indexer chooses among


def compressed_layers(keys: Keys) -> tuple[tuple[Layer, ...], int]:
    """`attention.compress_ratios` has the tokens of an entry in each layer, 0 for the window
    alone. Those for multi-token prediction are left out."""
    count = keys.need("block_count", limits.LAYERS.most) - keys.number("nextn_predict_layers")
    if count < 1:
        raise InvalidConfigError(f"{keys.where}: no layers but those for multi-token prediction")
    rates = keys.per_layer("attention.compress_ratios", count, 0)
    layers = (Layer(index=i, mixers=(_attention(keys, rate),)) for i, rate in enumerate(rates))
    return tuple(layers), keys.need("embedding_length")


def _attention(keys: Keys, rate: int | None) -> CompressedAttention:
    overlaps = rate == _OVERLAPPING
    return CompressedAttention(
        hidden_size=keys.need("embedding_length"),
        num_attention_heads=keys.need("attention.head_count"),
        head_dim=keys.need("attention.key_length"),
        q_lora_rank=keys.need("attention.q_lora_rank"),
        o_lora_rank=keys.need("attention.output_lora_rank"),
        o_groups=keys.need("attention.output_group_count"),
        window=keys.need("attention.sliding_window"),
        rate=rate or None,
        overlaps=overlaps,
        index_n_heads=keys.number("attention.indexer.head_count") if overlaps else 0,
        index_head_dim=keys.number("attention.indexer.key_length") if overlaps else 0,
    )
