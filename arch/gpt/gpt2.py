"""GPT-2 and its kin, with learned positions, and StarCoder 2."""

from dataclasses import replace

from ..architecture import Architecture, Conversion
from ..attention.layer_kinds import windowed
from ..attention.mha import MHA_BIASED
from ..attention.multi_query import multi_query_heads
from ..attention.shape import AttentionShape
from ..body.body import WEIGHT_AND_BIAS, Body, one_per_mixer
from ..body.feed_forward import Mlp, four_times_hidden
from ..body.shapes import N_INNER
from ..tensors.names import GPT2 as GPT2_NAMES
from ..tensors.names import TensorNames, separate, under

CTRL_NAMES = TensorNames(
    modules=under("multi_head_attention", q="Wq", k="Wk", v="Wv", o="dense"),
)
GPT_BIGCODE_NAMES = replace(GPT2_NAMES, transposed=False, fused="heads")
GPT_NEO_NAMES = TensorNames(modules=separate("attn.attention", o="out_proj"))


GPT2 = Architecture(
    types=("gpt2",),
    attention=AttentionShape(
        qkv_bias=True,
        o_bias=True,
        fixed_head_dim=True,
        kv_heads_from="query heads",
        cross="add_cross_attention",
    ),
    body=Body(
        norm=WEIGHT_AND_BIAS,
        norms=one_per_mixer,
        positions=("max_position_embeddings",),
        mlp=N_INNER,
        named=True,
    ),
    tensors=GPT2_NAMES,
    rotary="none",
    rehomes=("bigcode.GPT2",),
)
GPT_SW3 = GPT2.relative("gpt-sw3", config={"read_as": "gpt2"}, body={"named": False})
IMAGEGPT = GPT2.relative("imagegpt", body=None, rotary=None)
OPENAI_GPT = GPT_SW3.relative(
    "openai-gpt",
    config={"read_as": None},
    attention={"cached": False, "stack": "decoder", "cross": False},
    body={"final_norms": 0, "mlp": Mlp(width=four_times_hidden, gated=False, bias=True)},
    rotary=None,
)
GPT_BIGCODE = GPT2.relative(
    "gpt_bigcode",
    attention={
        "kv_heads_from": "flag",
        "key_value_heads": multi_query_heads,
        "key_value_keys": ("multi_query",),
    },
    tensors=GPT_BIGCODE_NAMES,
    conversion={"only": 1, "variant": {"multi_query": False}},
)
STARCODER2 = Architecture(
    types=("starcoder2",),
    attention=AttentionShape(kinds=windowed, qkv_bias="use_bias", o_bias="use_bias"),
    body=Body(norm=WEIGHT_AND_BIAS, mlp=Mlp(gated=False, bias="use_bias"), named=True),
    rotary="halves",
    conversion=Conversion(by_layer=True),
)
GPT_NEO = GPT2.relative(
    "gpt_neo",
    attention={"qkv_bias": False, "cross": False},
    body={"mlp": Mlp(times=4, gated=False, bias=True)},
    tensors=GPT_NEO_NAMES,
)
CTRL = Architecture(
    types=("ctrl",),
    attention=MHA_BIASED,
    body=Body(norm=WEIGHT_AND_BIAS, mlp=Mlp(width="dff", gated=False, bias=True), head_bias=True),
    tensors=CTRL_NAMES,
    rotary="none",
)

ARCHITECTURES = (GPT2, GPT_SW3, IMAGEGPT, OPENAI_GPT, GPT_BIGCODE, STARCODER2, GPT_NEO, CTRL)
