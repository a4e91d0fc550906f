"""OPT, BioGPT and XGLM with BART's names, and BLOOM and MPT, which see distances (ALiBi)."""

from ..architecture import Architecture, ConfigKeys
from ..attention.mha import MHA
from ..attention.shape import AttentionShape
from ..body.body import WEIGHT_AND_BIAS, Body, one_per_mixer
from ..body.feed_forward import Mlp, four_times_hidden
from ..body.shapes import PLAIN
from ..config_view import ConfigView
from ..tensors.names import BART as BART_NAMES
from ..tensors.names import BLOOM as BLOOM_NAMES
from ..tensors.names import TensorNames, under

MPT_NAMES = TensorNames(modules=under("attn", qkv="Wqkv", o="out_proj"))


def opt_final_norms(view: ConfigView) -> int:
    """None in OPT-350m, which normalises after each half of a layer."""
    return int(view.flag("do_layer_norm_before") and not view.flag("_remove_final_layer_norm"))


OPT = Architecture(
    types=("opt",),
    attention=AttentionShape(
        qkv_bias="enable_bias",
        o_bias="enable_bias",
        fixed_head_dim=True,
        kv_heads_from="query heads",
    ),
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
    rehomes=("bigcode.OPT",),
)
BIOGPT = OPT.relative(
    "biogpt",
    attention={"qkv_bias": True, "o_bias": True, "cross": "add_cross_attention"},
    body=Body(
        norm=WEIGHT_AND_BIAS,
        norms=one_per_mixer,
        positions=("max_position_embeddings",),
        position_offset=2,
        mlp=PLAIN,
    ),
)
XGLM = BIOGPT.relative(
    "xglm",
    body=Body(
        norm=WEIGHT_AND_BIAS, norms=one_per_mixer, mlp=Mlp(width="ffn_dim", gated=False, bias=True)
    ),
)
BLOOM = XGLM.relative(
    "bloom",
    config={"aliases": {"hidden_size": ("n_embed",)}},
    body={
        "embedding_norms": 1,
        "mlp": Mlp(width=four_times_hidden, gated=False, bias=True),
        "named": True,
    },
    tensors=BLOOM_NAMES,
    conversion={"alibi": True},
)
MPT = BLOOM.relative(
    "mpt",
    config=ConfigKeys(),
    attention=MHA,
    body=Body(mlp=Mlp(width=four_times_hidden, gated=False), named=True),
    tensors=MPT_NAMES,
)

ARCHITECTURES = (OPT, BIOGPT, XGLM, BLOOM, MPT)
