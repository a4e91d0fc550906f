"""OPT, BioGPT and XGLM with BART's names, and BLOOM and MPT, which see distances (ALiBi)."""

from dataclasses import replace

from ..architecture import Architecture, ConfigKeys, Conversion
from ..attention.shape import as_query_heads
from ..attention.shared import MHA, MHA_CROSSING
from ..body.body import WEIGHT_AND_BIAS, Body, one_per_mixer
from ..body.feed_forward import Mlp, four_times_hidden
from ..body.shared import PLAIN
from ..config_view import ConfigView
from ..tensors.names import BART_NAMES, BLOOM_NAMES, MPT_NAMES


def opt_final_norms(view: ConfigView) -> int:
    """None in OPT-350m, which normalises after each half of a layer."""
    return int(view.flag("do_layer_norm_before") and not view.flag("_remove_final_layer_norm"))


def mpt_heads(view: ConfigView, heads: int) -> int:
    """`attn_config.kv_n_heads` counts with `attn_type: grouped_query_attention` alone, in MPT's own
    code (llm-foundry, attention.py); the class of transformers knows MHA only."""
    inner = view.child("attn_config")
    kind = inner.get("attn_type")
    if kind == "multiquery_attention":
        return int(view.note("num_key_value_heads", 1, f"derived: attn_type {kind}"))
    given = inner.optional("kv_n_heads") if kind == "grouped_query_attention" else None
    if given is None:
        return as_query_heads(view, heads)
    return int(view.note("num_key_value_heads", given, f"{view.where}: attn_config (kv_n_heads)"))


ARCHITECTURES = (
    Architecture(
        types=("opt",),
        attention=replace(MHA, qkv_bias="enable_bias", o_bias="enable_bias"),
        body=Body(
            norm=WEIGHT_AND_BIAS,
            norm_if="layer_norm_elementwise_affine",
            final_norms=opt_final_norms,
            embedding_width="word_embed_proj_dim",
            positions=("max_position_embeddings",),
            position_offset=2,
            mlp=Mlp(width="ffn_dim", gated=False, bias="enable_bias"),
            named=True,
        ),
        tensors=BART_NAMES,
        rotary="none",
        rehomes=("bigcode.OPT_TO_BIGCODE",),
    ),
    Architecture(
        types=("biogpt",),
        attention=MHA_CROSSING,
        body=Body(
            norm=WEIGHT_AND_BIAS,
            norms=one_per_mixer,
            positions=("max_position_embeddings",),
            position_offset=2,
            mlp=PLAIN,
        ),
        tensors=BART_NAMES,
        rotary="none",
    ),
    Architecture(
        types=("xglm",),
        attention=MHA_CROSSING,
        body=Body(
            norm=WEIGHT_AND_BIAS,
            norms=one_per_mixer,
            mlp=Mlp(width="ffn_dim", gated=False, bias=True),
        ),
        tensors=BART_NAMES,
        rotary="none",
    ),
    Architecture(
        types=("bloom",),
        config=ConfigKeys(overriding={"hidden_size": ("n_embed",)}),
        attention=MHA_CROSSING,
        body=Body(
            norm=WEIGHT_AND_BIAS,
            norms=one_per_mixer,
            embedding_norms=1,
            mlp=Mlp(width=four_times_hidden, gated=False, bias=True),
            named=True,
        ),
        tensors=BLOOM_NAMES,
        rotary="none",
        conversion=Conversion(alibi=True),
    ),
    Architecture(
        types=("mpt",),
        attention=replace(MHA, key_value_heads=mpt_heads),
        body=Body(mlp=Mlp(width=four_times_hidden, gated=False), named=True),
        tensors=MPT_NAMES,
        rotary="none",
        conversion=Conversion(alibi=True),
    ),
)
