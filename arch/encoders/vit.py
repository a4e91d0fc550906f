"""Vision transformers: patches, learned tokens, positions, and layers that see all of them."""

from dataclasses import replace

from headcount.model.spec import Layer

from ..architecture import Architecture
from ..attention.layers import attention, layer_count, uncached_layers
from ..attention.shape import AttentionShape
from ..body.body import Head, Layers
from ..body.encoded_images import patches_and
from ..body.image_embeddings import area, patch_count, patches, vit_embeddings, vit_patches
from ..body.image_towers import dinov2_embeddings_and_mlps
from ..body.masked_lm import pooler
from ..body.shared import BARE_ENCODER, IMAGE, NO_MLP
from ..config_view import ConfigView
from ..tensors.names import TensorNames, separate, under
from .clip import CLIP_ENCODER
from .wav2vec2 import WAV2VEC2_NAMES


def deit_embeddings(view: ConfigView, layers: Layers) -> int:
    """A class token and one for distillation."""
    return vit_patches(view, 2)


def ijepa_embeddings(view: ConfigView, layers: Layers) -> int:
    return vit_patches(view, 0)


def vit_msn_embeddings(view: ConfigView, layers: Layers) -> int:
    return vit_patches(view, 1)


def beit_embeddings(view: ConfigView, layers: Layers) -> int:
    """A class token, positions only on demand, a table of relative ones in each layer or for all,
    and two scales in each layer."""
    hidden, side = view.integer("hidden_size"), patch_count(view)
    rows = 1 + bool(view.flag("use_mask_token"))
    rows += side + 1 if view.flag("use_absolute_position_embeddings") else 0
    scales = 0 if view.get("layer_scale_init_value") == 0 else 2 * len(layers)
    return (
        patches(view, bias=True) + (rows + scales) * hidden + _relative_positions(view, len(layers))
    )


def _relative_positions(view: ConfigView, layers: int) -> int:
    """Relative positions of patches per head, and three of the class token."""
    side = view.integer("image_size") // view.integer("patch_size")
    table = ((2 * side - 1) ** 2 + 3) * view.integer("num_attention_heads")
    own = layers if view.flag("use_relative_position_bias") else 0
    return table * (own + view.flag("use_shared_relative_position_bias"))


def data2vec_final_norms(view: ConfigView) -> int:
    """The last norm is the pooler's, which this class has not by default."""
    return 0 if view.flag("use_mean_pooling") else 1


def spectrogram_patches(view: ConfigView, layers: Layers) -> int:
    """Patches of a spectrogram that overlap; a class token and one for distillation."""
    size, hidden = view.integer("patch_size"), view.integer("hidden_size")
    rows = (view.integer("num_mel_bins") - size) // view.integer("frequency_stride") + 1
    length = view.optional("max_length") or 1024  # the class's default
    columns = (length - size) // view.integer("time_stride") + 1
    return hidden * (size * size + 1) + (rows * columns + 4) * hidden


def vivit_embeddings(view: ConfigView, layers: Layers) -> int:
    """Tubes of several frames, and a class token."""
    hidden, tube = view.integer("hidden_size"), view.integers("tubelet_size", count=3, minimum=1)
    frames, height, width = tube or (2, 16, 16)
    side = view.integer("image_size")
    count = (view.integer("num_frames") // frames) * (side // height) * (side // width)
    inputs = view.integer("num_channels") * frames * height * width
    return hidden * (inputs + 1) + (count + 2) * hidden


def yolos_embeddings(view: ConfigView, layers: Layers) -> int:
    """Class and detection tokens; positions, which the middle layers may have again, there for as
    many patches as the area of the image has."""
    hidden, size = view.integer("hidden_size"), view.integer("patch_size")
    tokens = view.integer("num_detection_tokens") + 1
    middle = len(layers) - 1 if view.flag("use_mid_position_embeddings") else 0
    again = middle * (area(view, "image_size") // size**2 + tokens)
    return patches(view, bias=True) + (2 * tokens + patch_count(view) + again) * hidden


def dinov3_layers(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """DINOv3 (arXiv 2508.10104): a flag for the bias of each projection."""
    mixer = replace(
        attention(shape, view),
        q_bias=view.flag("query_bias"),
        k_bias=view.flag("key_bias"),
        v_bias=view.flag("value_bias"),
        o_bias=view.flag("proj_bias"),
    )
    return uncached_layers(mixer, layer_count(view))


VIT_NAMES = TensorNames(
    modules=under("attention.attention", q="query", k="key", v="value")
    | {"attention.output.dense": "o"}
)
DINOV3_NAMES = TensorNames(modules=separate("attention"))
RADIO_NAMES = TensorNames(modules=under("attn", qkv="qkv", o="proj"))
# torch's own module of several heads
TIPS_NAMES = TensorNames(
    modules={"attn.in_proj_weight": "qkv", "attn.in_proj_bias": "qkv", "attn.out_proj": "o"}
)

VIT_CLASSES: dict[str, Head | None] = {"ViTModel": pooler}

VIT = Architecture(
    types=("vit",),
    attention=AttentionShape(
        qkv_bias="qkv_bias", o_bias=True, kv_heads_from="query heads", cached=False
    ),
    body=replace(
        IMAGE, more=vit_embeddings, classes=VIT_CLASSES, default_class="ViTModel", named=True
    ),
    tensors=VIT_NAMES,
    image=patches_and(1),
)
BEIT = VIT.relative(
    "beit",
    attention={"qkv_bias": True, "k_bias": False},
    body=replace(BARE_ENCODER, more=beit_embeddings),
    image=patches_and(1),
)

ARCHITECTURES = (
    VIT,
    VIT.relative(
        "audio-spectrogram-transformer", body=replace(BARE_ENCODER, more=spectrogram_patches)
    ),
    VIT.relative(
        "deit",
        body=replace(BARE_ENCODER, more=deit_embeddings, classes={"Model": pooler}),
        image=patches_and(2),
    ),
    VIT.relative(
        "dinov2",
        "dinov2_with_registers",
        body=replace(BARE_ENCODER, mlp=NO_MLP, more=dinov2_embeddings_and_mlps),
        image=patches_and(1, "num_register_tokens"),
    ),
    VIT.relative("vit_mae", "vit_msn", body=replace(BARE_ENCODER, more=vit_msn_embeddings)),
    VIT.relative("ijepa", body=replace(BARE_ENCODER, more=ijepa_embeddings), image=patches_and(0)),
    VIT.relative(
        "vivit", body=replace(BARE_ENCODER, more=vivit_embeddings, classes={"Model": pooler})
    ),
    VIT.relative(
        "yolos",
        attention={"fixed_head_dim": True},
        body=replace(BARE_ENCODER, more=yolos_embeddings, classes={"Model": pooler}),
        image=patches_and(1, "num_detection_tokens"),
    ),
    BEIT,
    BEIT.relative(
        "data2vec-vision",
        attention={"fixed_head_dim": True},
        body=replace(BARE_ENCODER, final_norms=data2vec_final_norms, more=beit_embeddings),
        image=patches_and(1),
    ),
    VIT.relative(
        "flava_image_model",
        "flava_multimodal_model",
        "flava_text_model",
        attention={"fixed_head_dim": True},
        body=None,
    ),
    VIT.relative("radio", attention={"fixed_head_dim": True}, tensors=RADIO_NAMES, body=None),
    # Towers whose total is counted with the model around them
    CLIP_ENCODER.relative(
        "aimv2_vision_model",
        attention={"qkv_bias": "qkv_bias", "o_bias": "qkv_bias"},
        tensors=WAV2VEC2_NAMES,
    ),
    CLIP_ENCODER.relative(
        "dinov3_vit",
        attention={"build": dinov3_layers},
        tensors=DINOV3_NAMES,
        image=patches_and(1, "num_register_tokens"),
    ),
    CLIP_ENCODER.relative(
        "pixtral", attention={"qkv_bias": False, "o_bias": False}, tensors=DINOV3_NAMES
    ),
    CLIP_ENCODER.relative("tipsv2_text_model", tensors=TIPS_NAMES),
    CLIP_ENCODER.relative("mlcd_vision_model"),
)
