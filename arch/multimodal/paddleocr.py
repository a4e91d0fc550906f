"""PaddleOCR-VL: ERNIE 4.5 behind a tower of SigLIP's kind."""

from dataclasses import replace

from ..architecture import MULTIMODAL
from ..body.image_towers import SMOLVLM_TOWER
from ..body.projectors import linear
from ..body.towers import fixed_tower
from ..config_view import ConfigView
from ..decoders.ernie import ERNIE4_5
from ..encoders.clip import CLIP_ENCODER
from ..tying import either_says


def paddleocr_vl_projector(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """A norm of patches, and two matrices over joined ones."""
    hidden = tower.integer("hidden_size")
    joined = hidden * tower.integer("spatial_merge_size") ** 2
    return 2 * hidden + linear(joined, joined) + linear(joined, text.integer("hidden_size"))


PADDLEOCR_VL_TOWER = replace(SMOLVLM_TOWER, model_type="paddleocr_vl_vision")

ARCHITECTURES = (
    MULTIMODAL.relative(
        "paddleocr_vl",
        config={"tied": either_says},
        body=fixed_tower(PADDLEOCR_VL_TOWER, projector=paddleocr_vl_projector),
    ),
    ERNIE4_5.relative("paddleocr_vl_text", body={"named": False}, rotary="halves"),
    CLIP_ENCODER.relative("paddleocr_vl_vision"),
)
