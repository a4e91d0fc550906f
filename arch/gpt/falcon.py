"""Falcon: one K/V head, or several, by a flag that depends on its generation."""

from headcount.model.spec import Layer

from ..architecture import Architecture, ConfigKeys, Conversion
from ..attention.shape import AttentionShape, multi_query_heads, standard_key_value_heads
from ..body.body import WEIGHT_AND_BIAS, Body
from ..body.feed_forward import Mlp
from ..config_view import ConfigView
from ..tensors.names import BLOOM_NAMES


def falcon_norms(view: ConfigView, layer: Layer) -> int:
    """Two, or one before both halves of a parallel layer; the new architecture keeps two there."""
    if not view.flag("parallel_attn"):
        return 2
    given = view.optional("num_ln_in_parallel_attn")
    return 2 if given == 2 or (given is None and view.flag("new_decoder_architecture")) else 1


def falcon_key_value_heads(view: ConfigView, heads: int) -> int:
    """The new architecture reads num_kv_heads and ignores multi_query; the old one the reverse."""
    if view.flag("new_decoder_architecture"):
        return standard_key_value_heads(view, heads)
    return multi_query_heads(view, heads)


# RWConfig's own defaults (tiiuae/falcon-40b, configuration_RW.py).
REFINED_WEB = {"new_decoder_architecture": True, "multi_query": False}

FALCON = Architecture(
    types=("falcon",),
    config=ConfigKeys(
        aliases={
            "num_attention_heads": ("n_head",),
            "num_hidden_layers": ("n_layer",),
            "num_key_value_heads": ("num_kv_heads", "n_head_kv"),
        },
        overriding={"hidden_size": ("n_embed",)},
    ),
    attention=AttentionShape(
        qkv_bias="bias",
        o_bias="bias",
        fixed_head_dim=True,
        kv_heads_from="flag",
        key_value_heads=falcon_key_value_heads,
        broadcasts_key_value="new_decoder_architecture",
        key_value_keys=("num_kv_heads",),
    ),
    body=Body(
        norm=WEIGHT_AND_BIAS,
        norms=falcon_norms,
        mlp=Mlp(width="ffn_hidden_size", times=4, gated=False, bias="bias"),
        named=True,
    ),
    tensors=BLOOM_NAMES,
    rotary="halves",
    conversion=Conversion(
        variant={"new_decoder_architecture": True, "multi_query": False}, alibi="alibi"
    ),
    spellings=("RefinedWebModel",),
    rehomes=("falcon.FALCON_TO_MULTI_QUERY",),
)

ARCHITECTURES = (
    FALCON,
    # Falcon-40B's first files: the new architecture, before a key said so. No class of transformers
    # reads them, and engines store the K/V heads once.
    FALCON.relative(
        "RefinedWeb",
        config={"read_as": "falcon", "defaults": REFINED_WEB},
        attention={"broadcasts_key_value": False},
    ),
)
