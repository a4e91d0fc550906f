"""DeepSeek's models of images and text, the decoders of its OCR models, and Janus."""

from dataclasses import replace

from ..architecture import MULTIMODAL, Architecture, Conversion
from ..attention.layer_kinds import FULL
from ..attention.shared import LLAMA_ATTENTION
from ..body.body import Body, lm_head
from ..body.deepseek_towers import OCR_TOWER, VL2_TOWER, mlp_projector
from ..body.image_towers import SIGLIP_TOWER, any_image
from ..body.projectors import two_matrices
from ..body.shared import EXPERTS_AFTER_FIRST, LISTED_EXPERTS, MLP_BIAS
from ..body.towers import Tower, Wrapper, fixed_tower, one_tower
from ..body.uncounted import IMAGE_TOKENIZER
from ..decoders.deepseek import DEEPSEEK_V2
from ..states.hybrid import LAYER_TYPES, hybrid, plain_attention
from ..states.kinds import all_of
from ..tensors.names import HYBRID_NAMES

DEEPSEEK_OCR2_TEXT = Architecture(
    types=("deepseek_ocr2_text",),
    attention=replace(LLAMA_ATTENTION, fixed_head_dim=True),
    body=Body(mlp=MLP_BIAS, experts=LISTED_EXPERTS),
    rotary="halves",
    conversion=Conversion(width_checked=True),
)


def by_code(tower: Tower) -> Wrapper:
    return replace(fixed_tower(tower, projector=mlp_projector), classes={"ForCausalLM": lm_head})


# DeepSeek-VL2 and DeepSeek-OCR, whose own files are of either type, by the code that is published
# with them, which has sizes of its own for a config without a tower.
DEEPSEEK_VL2 = MULTIMODAL.relative(
    "deepseek_vl_v2",
    config={
        "text": "language_config",
        "defaults": {
            "language_config": {"model_type": DEEPSEEK_V2.types[0]},
            "vision_config": {},
        },
    },
    body=by_code(VL2_TOWER),
)

ARCHITECTURES = (
    MULTIMODAL.relative(
        "deepseek_vl", body=one_tower(*any_image(SIGLIP_TOWER), projector=two_matrices)
    ),
    DEEPSEEK_VL2,
    DEEPSEEK_VL2.relative("deepseek_ocr", body=by_code(OCR_TOWER)),
    MULTIMODAL.relative("deepseek_vl_hybrid", "deepseek_ocr2", "unlimited_ocr"),
    DEEPSEEK_OCR2_TEXT,
    # All of the prompt stays, and a window of what was generated: a context counts as prompt.
    DEEPSEEK_OCR2_TEXT.relative(
        "unlimited_ocr_text",
        config={"aliases": LAYER_TYPES},
        attention={"build": hybrid({FULL: plain_attention}, written=False), "kinds": all_of(FULL)},
        body={"experts": EXPERTS_AFTER_FIRST},
        tensors=HYBRID_NAMES,
        conversion=Conversion(width_checked=True, eager=False),
    ),
    MULTIMODAL.relative("janus", uncounted=IMAGE_TOKENIZER),
)
