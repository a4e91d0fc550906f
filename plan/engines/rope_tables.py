"""Tables of cosines and sines, which engines keep for every position, on every rank."""

from collections.abc import Iterator, Mapping
from math import ceil
from typing import Any

from headcount.arch.our_types import base_type
from headcount.arch.registry import architecture_of
from headcount.model.mixers import Attention, LatentAttention
from headcount.model.spec import ModelSpec

from .loaded_table import LoadedTable

# Whose tables reach `factor` times the model's own positions; the others' end where it does
# (vllm/model_executor/layers/rotary_embedding).
_STRETCHED = ("linear", "dynamic")
_SECTIONS = 4  # with positions of images, tables are made four times as long (mrope.py there)


def rope_table(spec: ModelSpec, config: Mapping[str, Any]) -> LoadedTable | None:
    """In 2 bytes; None without rotation. A head of d elements takes d per position; the layers
    share a table, but those with a window have one of their own where the others' is stretched."""
    found = architecture_of(base_type(spec.model_type))
    if found is not None and found.rotary == "none":
        return None
    widths = {_rotated(m) for layer in spec.layers for m in layer.mixers} - {None}
    positions = spec.max_position_embeddings
    if not widths or positions is None:
        return None
    rows = _rows(positions, spec, config)
    size = int(rows * sum(width for width in widths if width) * 2 * _share(config))
    return LoadedTable(bytes=size, formula=f"rope table of {rows:,} positions")


def _rows(positions: int, spec: ModelSpec, config: Mapping[str, Any]) -> int:
    scaling = list(_scalings(config))
    factor = max((_factor(each) for each in scaling), default=1.0)
    plain = positions if factor > 1 and _mixes_windows(spec) else 0
    has_sections = any("mrope_section" in each for each in scaling) or _sees_frames(config)
    return ceil(positions * factor) * (_SECTIONS if has_sections else 1) + plain


def _scalings(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """`rope_scaling` or `rope_parameters`, which may hold one object per kind of layer."""
    for holder in (config, config.get("text_config")):
        for name in ("rope_scaling", "rope_parameters"):
            value = holder.get(name) if isinstance(holder, Mapping) else None
            if isinstance(value, Mapping):
                yield value
                yield from (each for each in value.values() if isinstance(each, Mapping))


def _sees_frames(config: Mapping[str, Any]) -> bool:
    """Encoders of videos come with positions in time, height and width."""
    vision = config.get("vision_config")
    return isinstance(vision, Mapping) and "temporal_patch_size" in vision


def _share(config: Mapping[str, Any]) -> float:
    """Of a head that is rotated, where one number says so for all layers."""
    text = config.get("text_config")
    holders = (*_scalings(config), text if isinstance(text, Mapping) else {}, config)
    found = (holder.get("partial_rotary_factor") for holder in holders)
    return next((each for each in found if isinstance(each, float) and 0 < each <= 1), 1.0)


def _factor(scaling: Mapping[str, Any]) -> float:
    kind, factor = scaling.get("rope_type", scaling.get("type")), scaling.get("factor")
    is_number = isinstance(factor, (int, float)) and 1 < factor <= 1024
    return float(factor) if kind in _STRETCHED and is_number and factor else 1.0


def _mixes_windows(spec: ModelSpec) -> bool:
    windows = {getattr(mixer, "window", None) for layer in spec.layers for mixer in layer.mixers}
    return None in windows and len(windows) > 1


def _rotated(mixer: object) -> int | None:
    if isinstance(mixer, LatentAttention):
        return mixer.qk_rope_head_dim
    return mixer.head_dim if isinstance(mixer, Attention) else None
