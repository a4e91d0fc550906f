"""Qwen's models of images: a tower that ends in a merger of neighbouring patches."""

from dataclasses import replace

from ..architecture import MULTIMODAL
from ..attention.layer_kinds import windowed
from ..body.qwen_towers import (
    QWEN2_5_VL_TOWER,
    QWEN2_VL_TOWER,
    QWEN3_VL_TOWER,
    qwen2_5_vl_projector,
    qwen2_vl_projector,
    qwen3_vl_projector,
)
from ..body.towers import fixed_tower
from ..decoders.qwen import QWEN2, QWEN3, SPARSE_STEPS
from ..tying import either_says

QWEN3_VL_MOE_TOWER = replace(QWEN3_VL_TOWER, model_type="qwen3_vl_moe_vision")

QWEN3_VL_TEXT = QWEN3.relative(
    "qwen3_vl_text", attention={"kinds": None}, body={"default_class": "TextModel"}
)
QWEN2_VL = MULTIMODAL.relative(
    "qwen2_vl",
    config={"tied": either_says},
    body=fixed_tower(QWEN2_VL_TOWER, projector=qwen2_vl_projector),
)
QWEN3_VL = MULTIMODAL.relative(
    "qwen3_vl", body=fixed_tower(QWEN3_VL_TOWER, projector=qwen3_vl_projector)
)

ARCHITECTURES = (
    QWEN2.relative(
        *("qwen2_vl_text", "qwen2_5_vl_text"),
        attention={"fixed_head_dim": True},
        body={"default_class": "TextModel"},  # no class of its own with a head
    ),
    QWEN3_VL_TEXT,
    QWEN3_VL_TEXT.relative(
        "qwen3_vl_moe_text", attention={"kinds": windowed}, body={"experts": SPARSE_STEPS}
    ),
    QWEN2_VL,
    QWEN2_VL.relative(
        "qwen2_5_vl", body=fixed_tower(QWEN2_5_VL_TOWER, projector=qwen2_5_vl_projector)
    ),
    QWEN3_VL,
    QWEN3_VL.relative(
        "qwen3_vl_moe", body=fixed_tower(QWEN3_VL_MOE_TOWER, projector=qwen3_vl_projector)
    ),
)
