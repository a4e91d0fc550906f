"""Falcon: one K/V head or several by a flag; Falcon Mamba; Falcon-H1, attention beside Mamba-2."""

from dataclasses import replace

from headcount.model.mixers import Mixer
from headcount.model.spec import Layer

from ..architecture import Architecture, ConfigKeys, Conversion
from ..attention.shape import AttentionShape, multi_query_heads, standard_key_value_heads
from ..attention.shared import LLAMA_ATTENTION
from ..body.body import WEIGHT_AND_BIAS, Body
from ..body.feed_forward import Mlp
from ..body.shared import DECODER_MLP_BIAS, NO_MLP
from ..config_view import ConfigView
from ..gguf.form import Gguf, Recurrence
from ..states.hybrid import HYBRID, LAYER_TYPES, LINEAR, MixerMaker, hybrid, plain_attention
from ..states.kinds import all_of
from ..states.mamba import BAMBA_KEYS, mamba1, mamba2
from ..tensors.names import BLOOM_NAMES, HYBRID_NAMES


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


def side_by_side(one: MixerMaker, other: MixerMaker) -> MixerMaker:
    """Both mixers in one layer (Falcon-H1)."""

    def make(shape: AttentionShape, view: ConfigView, kind: str) -> tuple[Mixer, ...]:
        return (*one(shape, view, kind), *other(shape, view, kind))

    return make


FALCON = Architecture(
    types=("falcon",),
    config=ConfigKeys(
        aliases={
            "hidden_size": ("n_embed",),
            "num_attention_heads": ("n_head",),
            "num_hidden_layers": ("n_layer",),
            "num_key_value_heads": ("num_kv_heads", "n_head_kv"),
        }
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
    spellings=("RefinedWebModel", "RefinedWeb"),
    rehomes=("falcon.FALCON",),
)

ARCHITECTURES = (
    FALCON,
    Architecture(
        types=("falcon_mamba",),
        config=ConfigKeys(aliases=LAYER_TYPES),
        attention=AttentionShape(
            build=hybrid({LINEAR: mamba1}, written=False), kinds=all_of(LINEAR)
        ),
        body=Body(norms=1, mlp=NO_MLP),
        tensors=HYBRID_NAMES,
    ),
    Architecture(
        types=("falcon_h1",),
        config=ConfigKeys(aliases=LAYER_TYPES),
        attention=replace(
            LLAMA_ATTENTION,
            build=hybrid(
                {
                    HYBRID: side_by_side(
                        plain_attention,
                        mamba2(
                            {**BAMBA_KEYS, "out_bias": "projectors_bias"},
                            width="mamba_d_ssm",
                            gated_norm="mamba_rms_norm",
                        ),
                    )
                },
                written=False,
            ),
            kinds=all_of(HYBRID),
        ),
        body=DECODER_MLP_BIAS,
        tensors=HYBRID_NAMES,
        rotary="halves",
        gguf=(
            Gguf(
                architecture="falcon-h1",
                recurrence=Recurrence(form="Mamba-2", layers="all", beside=True),
            ),
        ),
    ),
)
