"""What vLLM's profile keeps of an encoder of images: the largest inputs, and what it makes of them.

The profile fills a step's tokens, or more where one image takes more, with images of the largest
size, and keeps both their pixels and their embeddings until sampling is done (profile_run of
vllm/v1/worker/gpu_model_runner.py). The encoder's own pass comes first; where it is wider than all
that follows, it is the peak.
"""

from collections.abc import Mapping
from math import ceil
from typing import Any, NamedTuple

from headcount.arch.config_parts import has_tower, whole_configs
from headcount.model.numbers import size

from ...planned_model import PlannedModel
from ...request import Workload
from .defaults import StepLimits
from .measured import GIB, TOWER
from .runner import uses_v2

_COLOURS = 3
# Tokens of the largest image of encoders that take any size (max_pixels of Qwen's processors).
_LARGEST = 16384
_V2_PROFILES_SINCE = (0, 27)
# Keys of configs whose images become several of the encoder's size.
_TILING = (
    *("image_grid_pinpoints", "max_dynamic_patch", "max_num_tiles", "max_image_tiles"),
    *("max_splits_per_image", "max_patches", "use_thumbnail", "max_aspect_ratio"),
)


class EncoderShare(NamedTuple):
    """Bytes `kept` through the step, and those of the encoder's `own` pass with its pixels."""

    kept: int = 0
    own: int = 0
    formula: str = ""
    own_formula: str = ""
    error_bytes: int = 0


class Patches(NamedTuple):
    """Of an encoder: pixels of a patch on the image and its elements, patches that become one
    token, its widths, how many embeddings it makes of a token, and tokens of its largest image."""

    area: int
    pixels: int
    merged: int
    hidden: int
    inner: int
    levels: int
    largest: int


def encoder_share(model: PlannedModel, work: Workload, step: StepLimits) -> EncoderShare:
    """Nothing where the model has no encoder beside it, or none that a prompt may use, or where
    the V2 runner left it out."""
    if not has_tower(model.config) or without_towers(model, work):
        return EncoderShare()
    if uses_v2(model, work) and not work.version.at_least(*_V2_PROFILES_SINCE):
        return EncoderShare()
    patches = _patches(model.config, model.spec.model_type)
    if patches is None:
        size, error = ceil(TOWER.gib * GIB), ceil(TOWER.error_gib * GIB)
        formula = f" + {TOWER.gib:g} GiB of the encoder"
        return EncoderShare(kept=size, formula=formula, error_bytes=error)
    width = ceil(work.compute_bits / 8)
    tokens = _profiled_tokens(patches, work, step)
    each = patches.merged * patches.pixels + patches.levels * model.spec.hidden_size
    kept = tokens * each * width
    layer = 4 * patches.hidden + ceil(2 * patches.inner / work.request.tp)
    wide = patches.merged * (patches.pixels + layer)
    return EncoderShare(
        kept=kept,
        own=tokens * wide * width,
        formula=f" + encoder's {tokens:,} tokens x {each:,} of pixels and embeddings x {width} B",
        own_formula=f"encoder: {tokens:,} tokens x {wide:,} of pixels and a layer x {width} B",
        error_bytes=kept // 2 + ceil(0.1 * GIB),
    )


def _profiled_tokens(patches: Patches, work: Workload, step: StepLimits) -> int:
    """As many of the largest images as the step's tokens hold, or one; no more than all sequences
    may have (MultiModalBudget of vllm/multimodal/encoder_budget.py, compute_mm_encoder_budget of
    vllm/v1/core/encoder_cache_manager.py)."""
    item = _largest(patches, work)
    if not item:
        return step.max_num_batched_tokens
    items = max(1, step.max_num_batched_tokens // item)
    limits = work.request.limit_mm_per_prompt
    if limits is not None and limits.image is not None:
        items = min(items, max(1, limits.image * step.max_num_seqs))
    return items * item


def _largest(patches: Patches, work: Workload) -> int:
    """Tokens of the largest image; 0 where that is not known."""
    size = work.request.mm_processor_kwargs
    if size is None or patches.largest != _LARGEST:
        return patches.largest
    return max(1, min(patches.largest, size.max_pixels // (patches.area * patches.merged)))


def without_towers(model: PlannedModel, work: Workload) -> bool:
    """Whether --limit-mm-per-prompt leaves an encoder nothing to do."""
    limits = work.request.limit_mm_per_prompt
    if limits is None or limits.image != 0 or limits.video != 0:
        return False
    hears = isinstance(model.config.get("audio_config"), Mapping) or (
        isinstance(model.config.get("thinker_config"), Mapping)
    )
    return limits.audio == 0 or not hears


def _patches(config: Mapping[str, Any], model_type: str) -> Patches | None:
    """None for an encoder that is not known to cut images in square patches."""
    holders = list(whole_configs(config, model_type))
    vision = next((h for h in holders if (_size(h.get("patch_size")) or 0) > 0), None)
    if vision is None:
        return None
    side = _size(vision.get("patch_size")) or 0
    hidden = size(vision.get("embed_dim") or vision.get("hidden_size")) or 0
    inner = size(vision.get("intermediate_size")) or 4 * hidden
    frames = size(vision.get("temporal_patch_size")) or 0
    deep = vision.get("deepstack_visual_indexes")
    return Patches(
        area=side * side,
        pixels=_COLOURS * side * side * max(1, frames),
        merged=_merged(holders, vision, side),
        hidden=hidden,
        inner=inner,
        levels=1 + (len(deep) if isinstance(deep, list) else 0),
        largest=_LARGEST if frames else _of_one_size(holders, vision, side),
    )


def _of_one_size(holders: list[Mapping[str, Any]], vision: Mapping[str, Any], side: int) -> int:
    """Tokens of an image of the encoder's own size; 0 where images are cut in several of it."""
    image = _size(vision.get("image_size"))
    if image is None or any(holder.get(name) for holder in holders for name in _TILING):
        return 0
    return max(1, (image // side) ** 2 // _merged(holders, vision, side))


def _merged(holders: list[Mapping[str, Any]], vision: Mapping[str, Any], side: int) -> int:
    """Patches that make one token."""
    tokens = next((n for h in holders if (n := size(h.get("mm_tokens_per_image")))), None)
    image = _size(vision.get("image_size"))
    if tokens and image:
        return max(1, (image // side) ** 2 // tokens)
    for holder in (vision, *holders):
        for name in ("spatial_merge_size", "merge_kernel_size", "pooling_kernel_size"):
            if count := _size(holder.get(name)):
                return count * count
        for name in ("pixel_shuffle_ratio", "downsample_ratio"):
            ratio = holder.get(name)
            if isinstance(ratio, float) and 0 < ratio < 1:
                return max(1, round(1 / ratio**2))
    return 1


def _size(value: object) -> int | None:
    """A side: one number, or the last of several."""
    if isinstance(value, (list, tuple)) and value:
        return size(value[-1])
    return size(value)
