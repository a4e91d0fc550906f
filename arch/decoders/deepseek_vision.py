"""DeepSeek's models of images and text, and Janus."""

from ..architecture import Architecture, ConfigKeys, Conversion
from ..attention.layer_kinds import FULL
from ..attention.shape import AttentionShape
from ..body.body import Body
from ..body.image_towers import SIGLIP, any_image
from ..body.projectors import linear
from ..body.shapes import AFTER_DENSE, AFTER_FIRST, MLP_BIAS
from ..body.towers import Part, Wrapper
from ..config_view import ConfigView
from ..states.hybrid import LAYER_TYPES, hybrid, plain
from ..states.kinds import all_of
from ..tensors.names import HYBRID


def two_layers(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    out = text.integer("hidden_size")
    return linear(tower.integer("hidden_size"), out) + linear(out, out)


DEEPSEEK_VL = Architecture(
    types=("deepseek_vl",),
    config=ConfigKeys(text="text_config"),
    body=Wrapper(parts=(Part(towers=any_image(SIGLIP), projector=two_layers),)),
)
DEEPSEEK_VL_HYBRID = DEEPSEEK_VL.relative(
    "deepseek_vl_hybrid", "deepseek_ocr2", "unlimited_ocr", body=None
)
DEEPSEEK_OCR2_TEXT = Architecture(
    types=("deepseek_ocr2_text",),
    attention=AttentionShape(
        qkv_bias="attention_bias", o_bias="attention_bias", fixed_head_dim=True
    ),
    body=Body(mlp=MLP_BIAS, experts=AFTER_DENSE),
    rotary="halves",
    conversion=Conversion(width_checked=True),
)
# All of the prompt stays, and a window of what was generated: a context counts as prompt.
UNLIMITED_OCR_TEXT = DEEPSEEK_OCR2_TEXT.relative(
    "unlimited_ocr_text",
    config={"aliases": LAYER_TYPES},
    attention={"build": hybrid({FULL: plain}, written=False), "kinds": all_of(FULL)},
    body={"experts": AFTER_FIRST},
    tensors=HYBRID,
    conversion={"eager": False},
)
JANUS = DEEPSEEK_VL.relative(
    "janus", body=None, uncounted="its image tokenizer is a convolutional network of its own"
)

ARCHITECTURES = (
    DEEPSEEK_VL,
    DEEPSEEK_VL_HYBRID,
    DEEPSEEK_OCR2_TEXT,
    UNLIMITED_OCR_TEXT,
    JANUS,
)
