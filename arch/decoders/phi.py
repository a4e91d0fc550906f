"""Phi, and decoders of its shape: Persimmon, StableLM."""

from dataclasses import replace

from headcount.model.spec import Layer

from ..architecture import Architecture, ConfigKeys, Conversion
from ..attention.layer_kinds import windowed
from ..attention.shape import AttentionShape
from ..body.body import WEIGHT_AND_BIAS, Body, lm_head, no_head
from ..body.feed_forward import Mlp
from ..body.projectors import linear
from ..body.shapes import N_INNER, PARALLEL, PLAIN, SAME_WIDTH
from ..body.towers import Wrapper
from ..config_view import ConfigView
from ..gguf.form import Gguf
from ..tensors.names import MIXER, TensorNames, separate, under
from ..tying import always


def stablelm_norms(view: ConfigView, layer: Layer) -> int:
    return 1 if view.flag("use_parallel_residual") else 2


def fuyu(view: ConfigView, text: ConfigView) -> int:
    """Patches of pixels go into the language model through one matrix."""
    pixels = view.integer("patch_size") ** 2 * view.integer("num_channels")
    return linear(pixels, text.integer("hidden_size"))


PHI_MSFT_KEYS = {
    "hidden_size": ("n_embd",),
    "num_hidden_layers": ("n_layer",),
    "num_attention_heads": ("n_head",),
    "num_key_value_heads": ("n_head_kv",),
}


PHI_TENSORS = TensorNames(
    modules=separate("self_attn", o="dense")
    | {"self_attn.q_layernorm": "norm", "self_attn.k_layernorm": "norm"}
)


STABLELM_TENSORS = TensorNames(
    modules=separate("self_attn")
    | {"self_attn.q_layernorm.norms": "norm", "self_attn.k_layernorm.norms": "norm"}
)


QKV_PROJ_TENSORS = TensorNames(modules=under("self_attn", qkv="qkv_proj", o="o_proj"))


PERSIMMON_TENSORS = TensorNames(
    modules=under("self_attn", qkv="query_key_value", o="dense")
    | {"self_attn.q_layernorm": "norm", "self_attn.k_layernorm": "norm"},
    fused="heads",
)


PHI3_SMALL_TENSORS = TensorNames(
    modules=under("self_attn", qkv="query_key_value", o="dense"), fused="heads"
)


PHI = Architecture(
    types=("phi",),
    attention=AttentionShape(qkv_bias=True, o_bias=True, norm="head_bias", norm_if="qk_layernorm"),
    body=replace(PARALLEL, named=True),
    tensors=PHI_TENSORS,
    rotary="halves",
    conversion=Conversion(by_layer=True),
)
PHI3 = Architecture(
    types=("phi3",),
    attention=AttentionShape(kinds=windowed),
    body=Body(named=True),
    tensors=QKV_PROJ_TENSORS,
    rotary="halves",
    gguf=(Gguf(architecture="phi3", slides="dropped"),),
)
PHI4_MULTIMODAL = PHI3.relative(
    "phi4_multimodal", body=None, uncounted="its towers for images and sound are not counted"
)
PHIMOE = Architecture(
    types=("phimoe",),
    attention=AttentionShape(kinds=windowed, qkv_bias="attention_bias", o_bias="attention_bias"),
    body=Body(norm=WEIGHT_AND_BIAS, experts=SAME_WIDTH, head_bias="lm_head_bias", named=True),
    rotary="halves",
)
# The code of these two is published with their weights.
PHI3SMALL = Architecture(
    types=("phi3small",),
    config=ConfigKeys(tied=always),
    attention=AttentionShape(qkv_bias=True, o_bias=True),
    body=Body(norm=WEIGHT_AND_BIAS, mlp=Mlp(width="ff_intermediate_size", bias=True), named=True),
    tensors=PHI3_SMALL_TENSORS,
)
PHI_MSFT = Architecture(
    types=("phi-msft",),
    config=ConfigKeys(aliases=PHI_MSFT_KEYS),
    attention=AttentionShape(qkv_bias=True, o_bias=True),
    body=replace(PARALLEL, mlp=N_INNER),
    tensors=MIXER,
)
PERSIMMON = PHI.relative(
    "persimmon",
    attention={"fixed_head_dim": True, "kv_heads_from": "query heads"},
    body=Body(norm=WEIGHT_AND_BIAS, mlp=PLAIN),
    tensors=PERSIMMON_TENSORS,
    conversion=Conversion(),
)
FUYU = Architecture(
    types=("fuyu",),
    config=ConfigKeys(text="text_config"),
    body=Wrapper(parts=(), extra=fuyu, classes={"ForCausalLM": lm_head, "Model": no_head}),
)
STABLELM = Architecture(
    types=("stablelm",),
    attention=AttentionShape(
        qkv_bias="use_qkv_bias", norm="heads", norm_if="qk_layernorm", fixed_head_dim=True
    ),
    spellings=("stablelm_epoch",),
    body=Body(norm=WEIGHT_AND_BIAS, norms=stablelm_norms, named=True),
    tensors=STABLELM_TENSORS,
    rotary="halves",
)

ARCHITECTURES = (
    PHI,
    PHI3,
    PHI4_MULTIMODAL,
    PHIMOE,
    PHI3SMALL,
    PHI_MSFT,
    PERSIMMON,
    FUYU,
    STABLELM,
)
