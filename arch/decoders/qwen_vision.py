"""Qwen's models of images."""

from dataclasses import replace

from ..architecture import Architecture, ConfigKeys, Conversion
from ..attention.layer_kinds import windowed
from ..attention.shape import AttentionShape
from ..body.qwen_towers import (
    QWEN2_5_VL_TOWER,
    QWEN2_VL_TOWER,
    QWEN3_VL_TOWER,
    qwen2_5_vl_projector,
    qwen2_vl_projector,
    qwen3_vl_projector,
)
from ..body.towers import Part, Wrapper
from ..tying import either_word, own_word
from .qwen import QWEN2, SPARSE_STEPS

QWEN3_VL_MOE_TOWER = replace(QWEN3_VL_TOWER, model_type="qwen3_vl_moe_vision")

QWEN2_VL_TEXT = QWEN2.relative(
    *("qwen2_vl_text", "qwen2_5_vl_text"),
    attention={"fixed_head_dim": True},
    body={"default_class": "TextModel"},  # no class of its own with a head
    conversion=Conversion(),
)
QWEN3_VL_TEXT = QWEN2_VL_TEXT.relative(
    "qwen3_vl_text",
    attention=AttentionShape(qkv_bias="attention_bias", o_bias="attention_bias", norm="head"),
    rotary=None,
)
QWEN3_VL_MOE_TEXT = QWEN3_VL_TEXT.relative(
    "qwen3_vl_moe_text", attention={"kinds": windowed}, body={"experts": SPARSE_STEPS}
)
QWEN2_VL = Architecture(
    types=("qwen2_vl",),
    config=ConfigKeys(text="text_config", tied=either_word),
    body=Wrapper(parts=(Part(towers=(QWEN2_VL_TOWER,), projector=qwen2_vl_projector),)),
)
QWEN2_5_VL = QWEN2_VL.relative(
    "qwen2_5_vl",
    body={"parts": (Part(towers=(QWEN2_5_VL_TOWER,), projector=qwen2_5_vl_projector),)},
)
QWEN3_VL = QWEN2_VL.relative(
    "qwen3_vl",
    config={"tied": own_word},
    body={"parts": (Part(towers=(QWEN3_VL_TOWER,), projector=qwen3_vl_projector),)},
)
QWEN3_VL_MOE = QWEN3_VL.relative(
    "qwen3_vl_moe",
    body={"parts": (Part(towers=(QWEN3_VL_MOE_TOWER,), projector=qwen3_vl_projector),)},
)

ARCHITECTURES = (
    *(QWEN2_VL_TEXT, QWEN3_VL_TEXT, QWEN3_VL_MOE_TEXT),
    *(QWEN2_VL, QWEN2_5_VL, QWEN3_VL, QWEN3_VL_MOE),
)
