"""GPT-NeoX, GPT-J and CodeGen: rotary positions, and halves that run side by side."""

from dataclasses import replace

from headcount.model.spec import Layer

from ..architecture import Architecture
from ..attention.per_layer import Values
from ..attention.shared import MHA
from ..body.body import WEIGHT_AND_BIAS, Body
from ..body.feed_forward import Mlp
from ..body.shared import N_INNER, PLAIN
from ..config_view import ConfigView
from ..tensors.names import TensorNames, separate, under


def gpt_neox_japanese_width(view: ConfigView, layer: Layer) -> int:
    """GPT-NeoX Japanese."""
    return view.integer("hidden_size") * view.integer("intermediate_multiple_size")


def bias_of_last_layer(view: ConfigView, heads: int, head_dim: int) -> int:
    return view.integer("hidden_size") if view.flag("dense_bias") else 0


def last_is_biased(view: ConfigView, kinds: tuple[str, ...]) -> Values:
    """GPT-NeoX Japanese: only the last layer's output has a bias."""
    return [{"dense_bias": i == len(kinds) - 1} for i in range(len(kinds))]


CODEGEN_NAMES = TensorNames(modules=under("attn", qkv="qkv_proj", o="out_proj"), fused="quarters")
GPTJ_NAMES = TensorNames(modules=separate("attn", o="out_proj"))
GPT_NEOX_NAMES = TensorNames(
    modules=under("attention", qkv="query_key_value", o="dense"), fused="heads"
)
GPT_NEOX_JAPANESE_NAMES = GPT_NEOX_NAMES.also({"attention.dense_bias": "other"})

GPT_NEOX = Architecture(
    types=("gpt_neox",),
    attention=replace(MHA, qkv_bias="attention_bias", o_bias="attention_bias"),
    body=Body(norm=WEIGHT_AND_BIAS, mlp=PLAIN, named=True),
    tensors=GPT_NEOX_NAMES,
    rotary="halves",
    rehomes=("phi.GPT_NEOX_TO_PHI", "starcoder2.GPT_NEOX_TO_STARCODER2"),
)
GPTJ = Architecture(
    types=("gptj",),
    attention=MHA,
    body=Body(norm=WEIGHT_AND_BIAS, norms=1, mlp=N_INNER, head_bias=True, named=True),
    tensors=GPTJ_NAMES,
    rotary="pairs",
    rehomes=("phi.GPTJ_TO_PHI",),
)

ARCHITECTURES = (
    GPT_NEOX,
    GPT_NEOX.relative(
        "gpt_neox_japanese",
        attention={
            "qkv_bias": False,
            "o_bias": False,
            "other": bias_of_last_layer,
            "per_layer": last_is_biased,
        },
        body=Body(norm=WEIGHT_AND_BIAS, mlp=Mlp(width=gpt_neox_japanese_width, gated=False)),
        tensors=GPT_NEOX_JAPANESE_NAMES,
    ),
    GPTJ,
    GPTJ.relative(
        "codegen", body={"named": False}, tensors=CODEGEN_NAMES, rehomes=("phi.CODEGEN_TO_PHI",)
    ),
)
