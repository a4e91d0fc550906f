"""Attention of classes without GQA: one K/V head for each query head, whatever a config says."""

from dataclasses import replace

from .shape import AttentionShape

MHA = AttentionShape(fixed_head_dim=True, kv_heads_from="query heads")
MHA_BIASED = replace(MHA, qkv_bias=True, o_bias=True)
# An encoder's, which keeps nothing.
ENCODER_HEADS = replace(MHA_BIASED, cached=False)
