"""Llama, and decoders that differ from it by a flag, a norm or a number."""

from collections.abc import Callable
from dataclasses import replace
from math import isqrt

from headcount.model.errors import InvalidConfigError
from headcount.model.mixers import Attention, Mixer
from headcount.model.spec import Layer

from ..architecture import MULTIMODAL, Architecture, ConfigKeys, Conversion
from ..attention.layer_kinds import FULL, SLIDING, all_full, full_first, rope_layers, windowed
from ..attention.layers import decoder_layers
from ..attention.per_layer import Values, for_each_layer
from ..attention.shape import AttentionShape
from ..attention.shared import LLAMA_ATTENTION
from ..body.body import DECODER_CLASSES, NO_NORM, WEIGHT_AND_BIAS, Body, Layers, value_head
from ..body.feed_forward import Experts, Mlp, after, typed
from ..body.projectors import linear
from ..body.qwen_towers import QWEN2_5_VL_TOWER, qwen2_5_vl_projector
from ..body.shared import DECODER, DECODER_MLP_BIAS, DEEPSEEK_BODY, MLP_BIAS, PLAIN_MLP_BIAS
from ..body.towers import one_tower
from ..config_view import ConfigView, MissingValueError, positive
from ..gguf.form import Gguf, Windows
from ..tensors.names import LLAMA_NAMES, TensorNames, under


def hyperclovax_norms(view: ConfigView, layer: Layer) -> int:
    """Two more, after each half, unless `use_post_norm` says no."""
    return 4 if view.flag("use_post_norm") else 2


def norm_of_mlp(view: ConfigView, layers: Layers) -> int:
    """BitNet: a norm of the width of the MLP in each layer."""
    return len(layers) * view.integer("intermediate_size")


def activations(view: ConfigView, layers: Layers) -> int:
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


def hyperclovax_projector(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """Qwen2.5-VL's merger, and one matrix."""
    out = tower.integer("out_hidden_size")
    return qwen2_5_vl_projector(view, tower, text) + linear(out, text.integer("hidden_size"))


def openelm_heads(view: ConfigView, kinds: tuple[str, ...]) -> Values:
    """`num_query_heads` and `num_kv_heads` list a number for each layer."""
    heads = for_each_layer(view, "num_query_heads", len(kinds))
    kv = for_each_layer(view, "num_kv_heads", len(kinds))
    if heads is None or kv is None:
        raise MissingValueError(f"{view.where}: num_query_heads and num_kv_heads must be given")
    return [
        {"num_attention_heads": n, "num_key_value_heads": m} for n, m in zip(heads, kv, strict=True)
    ]


def masked_layers(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """Doge: a dynamic mask from `A` and `dt_proj`, from all values to a number per K/V head."""
    biased = view.flag("attention_bias")

    def masked(mixer: Mixer) -> Attention:
        assert isinstance(mixer, Attention)
        kv = mixer.num_key_value_heads
        return replace(mixer, other_parameters=kv + kv * (kv * mixer.head_dim + biased))

    return tuple(
        replace(layer, mixers=tuple(masked(mixer) for mixer in layer.mixers))
        for layer in decoder_layers(shape, view)
    )


def openelm_width(view: ConfigView, layer: Layer) -> int:
    """A multiple of the hidden size for each layer, rounded to the nearest multiple of a divisor,
    and up where that loses more than a tenth (arXiv 2404.14619 and its `make_divisible`)."""
    given = view.get("ffn_multipliers")
    multiples = given if isinstance(given, list) else [given] * (layer.index + 1)
    if layer.index >= len(multiples):
        raise InvalidConfigError(
            f"{view.where}: ffn_multipliers has no entry for layer {layer.index}"
        )
    name = f"ffn_multipliers of layer {layer.index}"
    factor = positive(multiples[layer.index], view.where, name, maximum=1000)
    divisor = view.optional("ffn_dim_divisor") or 256
    exact = factor * view.integer("hidden_size")
    width = max(divisor, int(exact + divisor / 2) // divisor * divisor)
    return width + (divisor if width < 0.9 * exact else 0)


def vectors_of_head_dim(count: int) -> Callable[[ConfigView, int, int], int]:
    """`count` vectors of head_dim: the lambdas of differential attention (arXiv 2410.05258)."""

    def parameters(view: ConfigView, heads: int, head_dim: int) -> int:
        return count * head_dim

    return parameters


def smollm3_kinds(view: ConfigView, count: int) -> tuple[str, ...]:
    """With `use_sliding_window`, the layers without RoPE slide."""
    if not view.flag("use_sliding_window") or not view.optional("sliding_window"):
        return all_full(view, count)
    return tuple(FULL if rope else SLIDING for rope in rope_layers(view, count))


def openelm_says(view: ConfigView, text: ConfigView) -> bool:
    """OpenELM's own name for it."""
    return view.flag("share_input_output_layers")


BITNET_NAMES = LLAMA_NAMES.also({"self_attn.attn_sub_norm": "norm"})
DIFFLLAMA_NAMES = LLAMA_NAMES.also(
    {f"self_attn.lambda_{part}{number}": "other" for part in "qk" for number in "12"}
)
DOGE_NAMES = LLAMA_NAMES.also({"self_attn.A": "other", "self_attn.dt_proj": "other"})
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
WIDTH_CHECKED = Conversion(width_checked=True)

LLAMA = Architecture(
    types=("llama",),
    attention=LLAMA_ATTENTION,
    body=Body(mlp=MLP_BIAS, named=True),
    rotary="halves",
    conversion=Conversion(by_layer=True, width_checked=True),
)
# Norms of q and k
APERTUS = LLAMA.relative(
    "apertus",
    attention={"norm": "head"},
    body=Body(mlp=Mlp(gated=False), more=apertus_activations, named=True),
    rotary=None,
)

EAGLE3_NOTE = (
    "The file is a head of EAGLE-3, which drafts for another model: what it shares with that model"
    " (an embedding, often the output head) is not counted."
)

ARCHITECTURES = (
    LLAMA,
    LLAMA.relative("iquestcoder", body=DECODER_MLP_BIAS, conversion=WIDTH_CHECKED),
    LLAMA.relative(
        "cwm",
        attention=AttentionShape(kinds=full_first(4)),
        body=DECODER_MLP_BIAS,
        conversion=WIDTH_CHECKED,
    ),
    LLAMA.relative(
        "internlm3", attention={"qkv_bias": "qkv_bias", "o_bias": "bias"}, conversion=WIDTH_CHECKED
    ),
    LLAMA.relative(
        "hyperclovax", body=Body(norms=hyperclovax_norms, mlp=MLP_BIAS), conversion=WIDTH_CHECKED
    ),
    LLAMA.relative(
        "smollm3", attention={"kinds": smollm3_kinds}, conversion=Conversion(by_layer=True)
    ),
    LLAMA.relative("seed_oss", attention={"o_bias": "attention_out_bias"}),
    LLAMA.relative("solar_open", attention={"o_bias": False}, body=DEEPSEEK_BODY),
    LLAMA.relative(
        "helium",
        attention={"o_bias": False},
        body=DECODER_MLP_BIAS,
        rotary="pairs",
        conversion=Conversion(whole_width=True),
    ),
    LLAMA.relative(
        "diffllama",
        attention={"other": vectors_of_head_dim(4)},
        body=DECODER,
        tensors=DIFFLLAMA_NAMES,
        conversion=Conversion(even_only=True),
    ),
    LLAMA.relative(
        "bitnet", attention={"norm": "output"}, body=Body(more=norm_of_mlp), tensors=BITNET_NAMES
    ),
    # Plain MLPs
    LLAMA.relative("arcee", body=Body(mlp=PLAIN_MLP_BIAS), conversion=WIDTH_CHECKED),
    LLAMA.relative(
        "jais2", body=Body(norm=WEIGHT_AND_BIAS, mlp=PLAIN_MLP_BIAS), conversion=WIDTH_CHECKED
    ),
    LLAMA.relative(
        "nanochat",
        body=Body(norm=NO_NORM, mlp=Mlp(gated=False)),
        rotary=None,
        conversion=Conversion(norms_keys=True),
    ),
    APERTUS,
    MULTIMODAL.relative("apertus1p5"),
    APERTUS.relative("apertus1p5_text", body={"more": activations, "named": False}),
    Architecture(
        types=("mellum",),
        attention=replace(LLAMA_ATTENTION, norm="head", kinds="full"),
        body=Body(experts=Experts(layers=typed(after(0)))),
        gguf=(Gguf(architecture="mellum", windows=Windows(period=4)),),
    ),
    Architecture(
        types=("doge",),
        attention=replace(LLAMA_ATTENTION, build=masked_layers, kinds=windowed, norm="head"),
        body=Body(norms=4, mlp=MLP_BIAS, more=doge_experts),
        tensors=DOGE_NAMES,
        conversion=Conversion(
            refused="its mask is computed from the values of all K/V heads at once"
        ),
    ),
    # Remote code
    Architecture(
        types=("internlm2",),
        attention=AttentionShape(qkv_bias="bias", o_bias="bias"),
        body=Body(named=True, classes={**DECODER_CLASSES, "InternLM2ForRewardModel": value_head}),
        tensors=INTERNLM2_NAMES,
    ),
    Architecture(
        types=("baichuan",),
        attention=AttentionShape(kv_heads_from="query heads"),
        body=Body(named=True),
        tensors=BAICHUAN_NAMES,
    ),
    Architecture(
        types=("openelm",),
        config=ConfigKeys(aliases=OPENELM_KEYS, tied=openelm_says),
        attention=AttentionShape(
            norm="head", norm_if="normalize_qk_projections", per_layer=openelm_heads
        ),
        body=Body(mlp=Mlp(width=openelm_width)),
        tensors=OPENELM_NAMES,
    ),
    # With towers
    MULTIMODAL.relative(
        "hyperclovax_vision_v2", body=one_tower(QWEN2_5_VL_TOWER, projector=hyperclovax_projector)
    ),
    # LLaDA denoises all tokens at once: it keeps nothing. transformers has no type of it.
    Architecture(
        types=(),
        gguf=(
            Gguf(architecture="llada", cached=False),
            Gguf(architecture="llada-moe", cached=False),
        ),
    ),
    # EAGLE-3's heads, which no config.json tells by a type of their own.
    Architecture(types=(), gguf=(Gguf(architecture="eagle3", drafts=True, note=EAGLE3_NOTE),)),
)
