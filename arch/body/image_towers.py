"""The image towers that wrappers of several lineages build, whichever of them a config names."""

from dataclasses import replace

from ..attention.shared import TOWER_MHA, TOWER_MHA_BIASED
from ..config_view import ConfigView
from .body import Body, Layers
from .feed_forward import Mlp, matrices
from .image_embeddings import clip_embeddings, patch_count, patches, vit_patches
from .projectors import linear
from .shared import IMAGE
from .towers import Tower


def siglip_embeddings(view: ConfigView, layers: Layers) -> int:
    """Patches and positions, and a pooling head."""
    embeddings = patches(view, bias=True) + patch_count(view) * view.integer("hidden_size")
    return embeddings + pooling_head(view)


def pooling_head(view: ConfigView) -> int:
    """A probe that attends to all patches, an MLP and a norm, unless `vision_use_head` says no."""
    if not view.flag("vision_use_head", absent=True):
        return 0
    hidden = view.integer("hidden_size")
    attention = linear(hidden, 4 * hidden)
    mlp = matrices(hidden, view.integer("intermediate_size"), gated=False, bias=True)
    return attention + mlp + 3 * hidden


def pixtral_patches(view: ConfigView, layers: Layers) -> int:
    """Patches; positions are rotary."""
    return patches(view, bias=False)


def smolvlm_embeddings(view: ConfigView, layers: Layers) -> int:
    """SigLIP's patches and positions."""
    return patches(view, bias=True) + patch_count(view) * view.integer("hidden_size")


def siglip2_embeddings(view: ConfigView, layers: Layers) -> int:
    """A matrix over the pixels of a patch, and positions for `num_patches` of them."""
    hidden, size = view.integer("hidden_size"), view.integer("patch_size")
    pixels = view.integer("num_channels") * size * size
    positions = view.integer("num_patches") * hidden
    return linear(pixels, hidden) + positions + pooling_head(view)


def internvl_embeddings(view: ConfigView, layers: Layers) -> int:
    """Patches, a class token and positions, and two scales in each layer; q/k norms on demand."""
    hidden = view.integer("hidden_size")
    rows = 1 + 2 * len(layers)
    rows += patch_count(view) + 1 if view.flag("use_absolute_position_embeddings") else 0
    rows += view.flag("use_mask_token") + (2 * len(layers) if view.flag("use_qk_norm") else 0)
    return patches(view, bias=True) + rows * hidden


def internvl_final_norms(view: ConfigView) -> int:
    """None after the last layer with mean pooling."""
    return 0 if view.flag("use_mean_pooling") else 1


def dinov2_embeddings(view: ConfigView, layers: Layers) -> int:
    """A class token, one that masks, registers without a position, and two scales in each layer."""
    hidden = view.integer("hidden_size")
    registers = view.optional("num_register_tokens", minimum=0) or 0
    mask = view.flag("use_mask_token", absent=True)
    return vit_patches(view, 1) + (mask + registers + 2 * len(layers)) * hidden


def dinov2_mlps(view: ConfigView, layers: Layers) -> int:
    hidden = view.integer("hidden_size")
    width = hidden * view.integer("mlp_ratio")
    if view.flag("use_swiglu_ffn"):
        width = (int(width * 2 / 3) + 7) // 8 * 8
        return len(layers) * matrices(hidden, width, gated=True, bias=True)
    return len(layers) * matrices(hidden, width, gated=False, bias=True)


def dinov2_embeddings_and_mlps(view: ConfigView, layers: Layers) -> int:
    return dinov2_embeddings(view, layers) + dinov2_mlps(view, layers)


CLIP_TOWER = Tower(
    body=replace(IMAGE, final_norms=2, more=clip_embeddings),
    attention=TOWER_MHA_BIASED,
    model_type="clip_vision_model",
)


SIGLIP_TOWER = Tower(
    body=replace(IMAGE, more=siglip_embeddings),
    attention=TOWER_MHA_BIASED,
    model_type="siglip_vision_model",
)


SIGLIP2_TOWER = Tower(
    body=replace(IMAGE, more=siglip2_embeddings),
    attention=TOWER_MHA_BIASED,
    model_type="siglip2_vision_model",
)


SMOLVLM_TOWER = Tower(
    body=replace(IMAGE, more=smolvlm_embeddings),
    attention=TOWER_MHA_BIASED,
    model_type="smolvlm_vision",
)


IDEFICS3_TOWER = replace(SMOLVLM_TOWER, model_type="idefics3_vision")


PIXTRAL_TOWER = Tower(
    body=Body(vocabulary=None, more=pixtral_patches), attention=TOWER_MHA, model_type="pixtral"
)


INTERNVL_TOWER = Tower(
    body=replace(IMAGE, final_norms=internvl_final_norms, more=internvl_embeddings),
    attention=replace(TOWER_MHA, qkv_bias="attention_bias", o_bias=True),
    model_type="internvl_vision",
)


DINOV2_TOWER = Tower(
    body=replace(IMAGE, mlp=Mlp(width=lambda view, layer: 0), more=dinov2_embeddings_and_mlps),
    attention=replace(TOWER_MHA_BIASED, qkv_bias="qkv_bias"),
    model_type="dinov2",
)


ANY_IMAGE = (
    CLIP_TOWER,
    SIGLIP_TOWER,
    SIGLIP2_TOWER,
    PIXTRAL_TOWER,
    IDEFICS3_TOWER,
    SMOLVLM_TOWER,
    INTERNVL_TOWER,
    DINOV2_TOWER,
)


def any_image(first: Tower) -> tuple[Tower, ...]:
    """Whatever image tower the config names, by default `first`."""
    return (first, *(tower for tower in ANY_IMAGE if tower is not first))
