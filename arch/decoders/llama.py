"""Llama, and decoders that differ from it by a flag, a norm or a number."""

from collections.abc import Callable
from dataclasses import replace
from math import isqrt
from typing import Any

from headcount.model.errors import InvalidConfigError
from headcount.model.mixers import Attention, Mixer
from headcount.model.spec import Layer

from ..architecture import Architecture, Conversion
from ..attention.layers import decoder
from ..attention.per_layer import Values, for_each_layer
from ..attention.shape import AttentionShape
from ..body.body import Body, Layers
from ..body.feed_forward import Mlp
from ..body.projectors import linear
from ..body.qwen_towers import qwen2_5_vl
from ..config_view import ConfigView, MissingValueError
from ..tensors.names import TensorNames, under


def hyperclovax_norms(view: ConfigView, layer: Layer) -> int:
    """Two more, after each half, unless `use_post_norm` says no."""
    return 4 if view.flag("use_post_norm") else 2


def widths(view: ConfigView, layers: Layers) -> int:
    """BitNet: a norm of the width of the MLP in each layer."""
    return len(layers) * view.integer("intermediate_size")


def always_xielu(view: ConfigView, layers: Layers) -> int:
    """Two learned numbers of the activation in each layer."""
    return 2 * len(layers)


def doge_experts(view: ConfigView, layers: Layers) -> int:
    """With `is_moe` each layer retrieves from `num_experts` pairs of vectors, by two key sets."""
    if not view.flag("is_moe"):
        return 0
    count = view.integer("num_experts")
    return len(layers) * view.integer("hidden_size") * (2 * isqrt(count) + 2 * count)


def apertus_activations(view: ConfigView, layers: Layers) -> int:
    """The xIELU activation learns two numbers in each layer."""
    learned = view.get("hidden_act") in (None, "xielu")
    return 2 * len(layers) if learned else 0


def hyperclovax(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """Qwen2.5-VL's merger, and one matrix."""
    out = tower.integer("out_hidden_size")
    return qwen2_5_vl(view, tower, text) + linear(out, text.integer("hidden_size"))


def openelm_heads(view: ConfigView, kinds: tuple[str, ...]) -> Values:
    """`num_query_heads` and `num_kv_heads` list a number for each layer."""
    heads = for_each_layer(view, "num_query_heads", len(kinds))
    kv = for_each_layer(view, "num_kv_heads", len(kinds))
    if heads is None or kv is None:
        raise MissingValueError(f"{view.where}: num_query_heads and num_kv_heads must be given")
    return [
        {"num_attention_heads": n, "num_key_value_heads": m} for n, m in zip(heads, kv, strict=True)
    ]


def doge(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """Doge: a dynamic mask from `A` and `dt_proj`, from all values to a number per K/V head."""
    biased = view.flag("attention_bias")

    def masked(mixer: Mixer) -> Attention:
        assert isinstance(mixer, Attention)
        kv = mixer.num_key_value_heads
        return replace(mixer, other_parameters=kv + kv * (kv * mixer.head_dim + biased))

    return tuple(
        replace(layer, mixers=tuple(masked(mixer) for mixer in layer.mixers))
        for layer in decoder(shape, view)
    )


def openelm_width(view: ConfigView, layer: Layer) -> int:
    """A multiple of the hidden size for each layer, rounded to the nearest multiple of a divisor,
    and up where that loses more than a tenth (arXiv 2404.14619 and its `make_divisible`)."""
    multiples: Any = view.get("ffn_multipliers")
    if not isinstance(multiples, list):
        multiples = [multiples] * (layer.index + 1)
    factor = multiples[layer.index] if layer.index < len(multiples) else None
    if not isinstance(factor, (int, float)) or isinstance(factor, bool) or not 0 < factor < 1000:
        raise InvalidConfigError(
            f"{view.where}: ffn_multipliers has no valid entry for layer {layer.index}"
        )
    divisor = view.optional("ffn_dim_divisor") or 256
    exact = factor * view.integer("hidden_size")
    width = max(divisor, int(exact + divisor / 2) // divisor * divisor)
    return width + (divisor if width < 0.9 * exact else 0)


def vectors_of_head_dim(count: int) -> Callable[[ConfigView, int, int], int]:
    """`count` vectors of head_dim: the lambdas of differential attention (arXiv 2410.05258)."""

    def parameters(view: ConfigView, heads: int, head_dim: int) -> int:
        return count * head_dim

    return parameters


BITNET_NAMES = replace(LLAMA_NAMES, modules={**LLAMA_NAMES.modules, "self_attn.attn_sub_norm": "norm"})
DIFFLLAMA_NAMES = replace(
    LLAMA_NAMES,
    modules={
        **LLAMA_NAMES.modules,
        **{f"self_attn.lambda_{part}{number}": "other" for part in "qk" for number in "12"},
    },
)
DOGE_NAMES = replace(
    LLAMA, modules={**LLAMA_NAMES.modules, "self_attn.A": "other", "self_attn.dt_proj": "other"}
)
INTERNLM2_NAMES = TensorNames(modules=under("attention", qkv="wqkv", o="wo"), fused="heads")
BAICHUAN_NAMES = TensorNames(modules=under("self_attn", qkv="W_pack", o="o_proj"))
OPENELM_NAMES = TensorNames(
    modules=under("attn", qkv="qkv_proj", o="out_proj")
    | {"attn.q_norm": "norm", "attn.k_norm": "norm"}
)


# OpenELM: its lists of heads have an entry for each layer (arXiv 2404.14619).
OPENELM_KEYS = {
    "hidden_size": ("model_dim",),
    "num_hidden_layers": ("num_transformer_layers",),
    "max_position_embeddings": ("max_context_length",),
}


RMS_NORM_GATED_MLP = Body(named=True)

LLAMA = Architecture(
    types=("llama",),
    attention=AttentionShape(qkv_bias="attention_bias", o_bias="attention_bias"),
    body=Body(mlp=Mlp(bias="mlp_bias"), named=True),
    rotary="halves",
    conversion=Conversion(by_layer=True, width_checked=True),
)

ARCHITECTURES = (LLAMA,)
