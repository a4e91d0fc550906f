"""The rows that most others are, or differ from by a flag."""

from dataclasses import replace

from ... import tying
from ...attention import layer_kinds as kinds
from ...attention import layers, shape
from ...tensors import names
from .. import odd
from ..row import Family

LLAMA = Family(qkv_bias="attention_bias", o_bias="attention_bias")
LLAMA_NORMED = replace(LLAMA, norm="head")
NO_BIAS = Family()
MISTRAL = replace(NO_BIAS, kinds=kinds.windowed)
USE_BIAS = Family(qkv_bias="use_bias", o_bias="use_bias")
QWEN2 = Family(qkv_bias=True, kinds=kinds.upper_layers)
QWEN3 = replace(LLAMA_NORMED, kinds=kinds.upper_layers)
GLM = Family(qkv_bias="attention_bias")
GEMMA2 = replace(LLAMA, kinds=kinds.every(2))
GEMMA3 = replace(
    LLAMA_NORMED, kinds=kinds.every(6, "sliding_window_pattern"), window=layers.halved_if_two_sided
)
OLMO2 = replace(LLAMA, norm="heads")
ALL_HEADS_FIXED = Family(fixed_head_dim=True, key_value_heads=shape.as_query_heads)
ALL_BIASED = replace(ALL_HEADS_FIXED, qkv_bias=True, o_bias=True)
GPT2 = replace(ALL_BIASED, names=names.GPT2, cross="add_cross_attention")
BERT = replace(ALL_BIASED, names=names.BERT, cached="is_decoder", cross="add_cross_attention")
VIT = replace(ALL_BIASED, names=names.VIT, cached=False, qkv_bias="qkv_bias", fixed_head_dim=False)
BART = replace(ALL_BIASED, names=names.BART, build=odd.bart)
T5 = Family(names=names.T5, build=odd.t5, tied=tying.always)
MLA = replace(LLAMA, names=names.MLA, build=layers.latent)
GEMMA4 = replace(
    LLAMA_NORMED,
    kinds=kinds.every(6),
    build=odd.gemma,
    per_layer=odd.gemma4_values,
    key_value_keys=("num_key_value_heads", "num_global_key_value_heads"),
    per_layer_key="per_layer_config",
    window=layers.halved_if_two_sided,
    defaults={"global_head_dim": 512},  # set in __post_init__, so no declared default
)
WRAPPER = Family(text="text_config")
