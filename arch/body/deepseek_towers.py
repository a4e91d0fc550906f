"""The image towers of DeepSeek-VL2 (siglip_vit.py), DeepSeek-OCR (deepencoder.py) and its second
model (deepencoderv2.py), by the code that is published with them: SigLIP, and SAM in front of CLIP
or of layers of Qwen2."""

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
_SAM_GRID, _SAM_PATCH, _SAM_WINDOW, _SAM_BETWEEN, _CLIP_WIDTH = 64, 16, 14, 512, 1024
# Qwen2-0.5B without its tables, and a query for each patch of views of 768 and 1,024 pixels.
_QWEN = "qwen2-0-5b"
_QWEN_WIDTH, _QWEN_LAYERS, _QWEN_KEYS, _QWEN_MLP, _QWEN_QUERIES = 896, 24, 128, 4864, 144 + 256


def sam_base(out: int) -> int:
    """SAM's image encoder and two convolutions of stride 2 to a width of `out`. Each attention has
    tables of relative positions for both sides, of its grid or its window."""
    width = _SAM_WIDTH
    layer = linear(width, 3 * width) + linear(width, width) + 4 * width
    layer += linear(width, 4 * width) + linear(4 * width, width)
    tables = 2 * _SAM_HEAD * (2 * _SAM_GRID - 1) * _SAM_GLOBAL
    tables += 2 * _SAM_HEAD * (2 * _SAM_WINDOW - 1) * (_SAM_LAYERS - _SAM_GLOBAL)
    patches = linear(3 * _SAM_PATCH**2, width) + _SAM_GRID**2 * width
    neck = width * _SAM_NECK + 9 * _SAM_NECK**2 + 4 * _SAM_NECK
    last = 9 * _SAM_BETWEEN * (_SAM_NECK + out)
    return patches + _SAM_LAYERS * layer + tables + neck + last


def ocr_tower(view: ConfigView) -> int:
    """OCR's, whose sizes are constants of its code: `width` names those of the second model."""
    if _is_second(view):
        return sam_base(_QWEN_WIDTH) + _queried_qwen()
    clip = replace(CLIP_TOWER, body=replace(CLIP_TOWER.body, final_norms=1))
    return sam_base(_CLIP_WIDTH) + clip.parameters(ConfigView(_CLIP_L, where=view.where))


def _is_second(view: ConfigView) -> bool:
    named = view.get("width")
    return isinstance(named, dict) and _QWEN in named


def _queried_qwen() -> int:
    width, keys = _QWEN_WIDTH, _QWEN_KEYS
    layer = linear(width, width) + 2 * linear(width, keys) + width * width
    layer += 3 * width * _QWEN_MLP + 2 * width
    return _QWEN_LAYERS * layer + width + _QWEN_QUERIES * width


def either_tower(view: ConfigView) -> int:
    """SigLIP, or OCR's where `width` is an object that names it."""
    if isinstance(view.get("width"), dict):
        return ocr_tower(view)
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
    """MlpProjector of `projector_config`, and two vectors that end a row and part two views: OCR's
    second model has no rows to end."""
    given = view.child("projector_config")
    out = given.optional("n_embed") or 2048
    inputs = given.optional("input_dim") or 1152
    kind = given.get("projector_type") or "downsample_mlp_gelu"
    if view.get("tile_tag") not in (None, "2D") or given.get("token_pooling"):
        raise UncountedError("what joins its image tower to the language model is not counted")
    if kind == "linear":
        return linear(inputs, out) + (1 if _is_second(tower) else 2) * out
    if kind != "downsample_mlp_gelu":
        raise UncountedError(f"its projector of the type {str(kind)[:40]!r} is not counted")
    inner = out * (given.optional("mlp_ratio") or 1)
    side, depth = given.optional("downsample_ratio") or 2, given.optional("depth") or 2
    between = max(0, depth - 2) * linear(inner, inner)
    return linear(inputs * side * side, inner) + between + linear(inner, out) + 2 * out


VL2_TOWER = Tower(model_type="vision", whole=either_tower)
OCR_TOWER = Tower(model_type="vision", whole=ocr_tower)
