"""Attention that several lineages share."""

from dataclasses import replace

from .layers import encoder_layers
from .shape import AttentionShape

# Grouped queries, and biases on demand: nearly every decoder since Llama.
LLAMA_ATTENTION = AttentionShape(qkv_bias="attention_bias", o_bias="attention_bias")

# Classes without GQA: one K/V head for each query head, whatever a config says.
MHA = AttentionShape(fixed_head_dim=True, kv_heads_from="query heads")
MHA_BIASED = replace(MHA, qkv_bias=True, o_bias=True)
# A decoder's that may attend to an encoder, too.
MHA_CROSSING = replace(MHA_BIASED, cross="add_cross_attention")
# An encoder's, which keeps nothing.
ENCODER_MHA = replace(MHA_BIASED, cached=False)
# That of a tower beside a language model.
TOWER_MHA = replace(MHA, build=encoder_layers)
TOWER_MHA_BIASED = replace(MHA_BIASED, build=encoder_layers)
