"""Phi: one norm before both halves, or Llama's layers; Persimmon, StableLM and Fuyu."""

from dataclasses import replace

from headcount.model.spec import Layer

from ..architecture import MULTIMODAL, Architecture, ConfigKeys, Conversion
from ..attention.layer_kinds import windowed
from ..attention.shape import AttentionShape
from ..attention.shared import LLAMA_ATTENTION, MHA_BIASED
from ..body.body import DECODER_CLASSES, WEIGHT_AND_BIAS, Body, Layers, lm_head, no_head
from ..body.feed_forward import Mlp
from ..body.image_towers import CLIP_TOWER
from ..body.projectors import linear
from ..body.shared import N_INNER, PLAIN, SAME_WIDTH
from ..body.towers import Wrapper
from ..body.uncounted import UncountedError
from ..config_view import ConfigView
from ..gguf.form import Gguf
from ..tensors.names import MIXER_NAMES, TensorNames, separate, under
from ..tying import always


def stablelm_norms(view: ConfigView, layer: Layer) -> int:
    return 1 if view.flag("use_parallel_residual") else 2


def fuyu_patches(view: ConfigView, text: ConfigView) -> int:
    """Patches of pixels go into the language model through one matrix."""
    pixels = view.integer("patch_size") ** 2 * view.integer("num_channels")
    return linear(pixels, text.integer("hidden_size"))


def phi3_v_tower(view: ConfigView, layers: Layers) -> int:
    """CLIP ViT-L/14 of 336 pixels, whatever else `img_processor` might name; two separators of four
    joined patches, and two matrices (microsoft/Phi-3-vision-128k-instruct, image_embedding_phi3_v).
    """
    hidden, processor = view.integer("hidden_size"), view.child("img_processor")
    name, width = processor.get("name"), processor.optional("image_dim_out")
    if name != CLIP_TOWER.model_type or width != CLIP_L_336["hidden_size"]:
        raise UncountedError(f"the image tower {str(name)[:80]!r} is not counted")
    tower = CLIP_TOWER.parameters(ConfigView(CLIP_L_336, where=processor.where))
    joined = 4 * width
    return tower + 2 * joined + linear(joined, hidden) + linear(hidden, hidden)


# openai/clip-vit-large-patch14-336
CLIP_L_336 = {
    **{"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24},
    **{"num_attention_heads": 16, "image_size": 336, "patch_size": 14, "num_channels": 3},
}
PHI_NAMES = TensorNames(
    modules=separate("self_attn", o="dense")
    | {"self_attn.q_layernorm": "norm", "self_attn.k_layernorm": "norm"}
)
STABLELM_NAMES = TensorNames(
    modules=separate("self_attn")
    | {"self_attn.q_layernorm.norms": "norm", "self_attn.k_layernorm.norms": "norm"}
)
QKV_PROJ_NAMES = TensorNames(modules=under("self_attn", qkv="qkv_proj", o="o_proj"))
PERSIMMON_NAMES = TensorNames(
    modules=under("self_attn", qkv="query_key_value", o="dense")
    | {"self_attn.q_layernorm": "norm", "self_attn.k_layernorm": "norm"},
    fused="heads",
)
PHI3_SMALL_NAMES = TensorNames(
    modules=under("self_attn", qkv="query_key_value", o="dense"), fused="heads"
)

# LayerNorm once before both halves, and a plain MLP (Phi, GPT-J)
PARALLEL = Body(norm=WEIGHT_AND_BIAS, norms=1, mlp=PLAIN, head_bias=True)
PHI_MSFT_KEYS = {
    "hidden_size": ("n_embd",),
    "num_hidden_layers": ("n_layer",),
    "num_attention_heads": ("n_head",),
    "num_key_value_heads": ("n_head_kv",),
}

PHI3 = Architecture(
    types=("phi3",),
    attention=AttentionShape(kinds=windowed),
    body=Body(named=True),
    tensors=QKV_PROJ_NAMES,
    rotary="halves",
    gguf=(Gguf(architecture="phi3", slides="dropped"),),
)

ARCHITECTURES = (
    Architecture(
        types=("phi",),
        attention=AttentionShape(
            qkv_bias=True, o_bias=True, norm="head_bias", norm_if="qk_layernorm"
        ),
        body=replace(PARALLEL, named=True),
        tensors=PHI_NAMES,
        rotary="halves",
        # SGLang makes a K/V head per query head, and llama.cpp's converter writes their number.
        conversion=Conversion(by_layer=True, not_in=("SGLang", "llama.cpp")),
    ),
    PHI3,
    # Phi-3-vision and Phi-3.5-vision; their code is published with their weights.
    PHI3.relative("phi3_v", body={"more": phi3_v_tower}),
    PHI3.relative(
        "phi4_multimodal", body=None, uncounted="its towers for images and sound are not counted"
    ),
    Architecture(
        types=("phimoe",),
        attention=replace(LLAMA_ATTENTION, kinds=windowed),
        body=Body(norm=WEIGHT_AND_BIAS, experts=SAME_WIDTH, head_bias="lm_head_bias", named=True),
        rotary="halves",
    ),
    # The code of these two is published with their weights.
    Architecture(
        types=("phi3small",),
        config=ConfigKeys(tied=always),
        attention=AttentionShape(qkv_bias=True, o_bias=True),
        body=Body(
            norm=WEIGHT_AND_BIAS, mlp=Mlp(width="ff_intermediate_size", bias=True), named=True
        ),
        tensors=PHI3_SMALL_NAMES,
    ),
    Architecture(
        types=("phi-msft",),
        config=ConfigKeys(aliases=PHI_MSFT_KEYS),
        attention=AttentionShape(qkv_bias=True, o_bias=True),
        # its own code calls the class as transformers does that of "phi"
        body=replace(PARALLEL, mlp=N_INNER, classes={**DECODER_CLASSES, "PhiForCausalLM": lm_head}),
        tensors=MIXER_NAMES,
    ),
    Architecture(
        types=("persimmon",),
        attention=replace(MHA_BIASED, norm="head_bias", norm_if="qk_layernorm"),
        body=Body(norm=WEIGHT_AND_BIAS, mlp=PLAIN),
        tensors=PERSIMMON_NAMES,
        rotary="halves",
    ),
    MULTIMODAL.relative(
        "fuyu",
        body=Wrapper(
            parts=(), more=fuyu_patches, classes={"ForCausalLM": lm_head, "Model": no_head}
        ),
    ),
    Architecture(
        types=("stablelm",),
        attention=AttentionShape(
            qkv_bias="use_qkv_bias", norm="heads", norm_if="qk_layernorm", fixed_head_dim=True
        ),
        spellings=("stablelm_epoch",),
        body=Body(norm=WEIGHT_AND_BIAS, norms=stablelm_norms, named=True),
        tensors=STABLELM_NAMES,
        rotary="halves",
    ),
)
