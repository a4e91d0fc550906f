"""The image towers of DeepSeek-VL2 (siglip_vit.py) and DeepSeek-OCR (deepencoder.py), by the code
that is published with them: SigLIP, and SAM in front of CLIP."""

from dataclasses import replace

from ..config_view import ConfigView
from .image_towers import CLIP_TOWER, SIGLIP_TOWER
from .projectors import linear
from .towers import Tower
from .uncounted import UncountedError

_SIGLIP = {"image_size": 384, "patch_size": 16, "width": 1024, "layers": 24, "heads": 16}
_NAMES = {"width": "hidden_size", "layers": "num_hidden_layers", "heads": "num_attention_heads"}
# OpenAI's CLIP ViT-L/14 of 224 pixels, without the norm after its last layer.
_CLIP_L = {
    **{"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24},
    **{"num_attention_heads": 16, "image_size": 224, "patch_size": 14, "num_channels": 3},
}
# SAM's ViT-B of 1024 pixels: layers that see all patches among those with windows, and a neck.
_SAM_WIDTH, _SAM_LAYERS, _SAM_GLOBAL, _SAM_HEAD, _SAM_NECK = 768, 12, 4, 64, 256
_SAM_GRID, _SAM_PATCH, _SAM_WINDOW, _SAM_OUT = 64, 16, 14, (512, 1024)


def sam_base() -> int:
    """SAM's image encoder and two convolutions of stride 2. Each attention has tables of relative
    positions for both sides, of its grid or its window."""
    width = _SAM_WIDTH
    layer = linear(width, 3 * width) + linear(width, width) + 4 * width
    layer += linear(width, 4 * width) + linear(4 * width, width)
    tables = 2 * _SAM_HEAD * (2 * _SAM_GRID - 1) * _SAM_GLOBAL
    tables += 2 * _SAM_HEAD * (2 * _SAM_WINDOW - 1) * (_SAM_LAYERS - _SAM_GLOBAL)
    patches = linear(3 * _SAM_PATCH**2, width) + _SAM_GRID**2 * width
    neck = width * _SAM_NECK + 9 * _SAM_NECK**2 + 4 * _SAM_NECK
    first, second = _SAM_OUT
    return patches + _SAM_LAYERS * layer + tables + neck + 9 * first * (_SAM_NECK + second)


def sam_and_clip(view: ConfigView) -> int:
    """OCR's, whose sizes are constants of its code."""
    clip = replace(CLIP_TOWER, body=replace(CLIP_TOWER.body, final_norms=1))
    return sam_base() + clip.parameters(ConfigView(_CLIP_L, where=view.where))


def either_tower(view: ConfigView) -> int:
    """SigLIP, or OCR's where `width` is an object that names it."""
    if isinstance(view.get("width"), dict):
        return sam_and_clip(view)
    sizes = {**_SIGLIP, **{key: value for key, value in view.config.items() if value is not None}}
    named = {_NAMES.get(key, key): value for key, value in sizes.items()}
    inner = ConfigView({**named, "num_channels": 3}, where=view.where)
    inner = inner.overridden({"intermediate_size": _mlp_width(inner)})
    if view.get("global_pool") not in (None, "map") or view.get("class_token"):
        raise UncountedError("its image tower pools in a way that is not counted")
    return SIGLIP_TOWER.parameters(inner)


def _mlp_width(view: ConfigView) -> int:
    ratio = view.positive("mlp_ratio")
    return int(view.integer("hidden_size") * (4 if ratio is None else ratio))


def mlp_projector(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """MlpProjector of `projector_config`, and two vectors that end a row and part two views."""
    given = view.child("projector_config")
    out = given.optional("n_embed") or 2048
    inputs = given.optional("input_dim") or 1152
    kind = given.get("projector_type") or "downsample_mlp_gelu"
    if view.get("tile_tag") not in (None, "2D") or given.get("token_pooling"):
        raise UncountedError("what joins its image tower to the language model is not counted")
    if kind == "linear":
        return linear(inputs, out) + 2 * out
    if kind != "downsample_mlp_gelu":
        raise UncountedError(f"its projector of the type {str(kind)[:40]!r} is not counted")
    inner = out * (given.optional("mlp_ratio") or 1)
    side, depth = given.optional("downsample_ratio") or 2, given.optional("depth") or 2
    between = max(0, depth - 2) * linear(inner, inner)
    return linear(inputs * side * side, inner) + between + linear(inner, out) + 2 * out


VL2_TOWER = Tower(model_type="vision", whole=either_tower)
OCR_TOWER = Tower(model_type="vision", whole=sam_and_clip)
