"""InternVL and Qianfan-OCR."""

from dataclasses import replace

from ..architecture import Architecture, ConfigKeys
from ..body.image_towers import INTERN, any_image
from ..body.projectors import linear
from ..body.towers import Part, Wrapper
from ..config_view import ConfigView

QIANFAN_TOWER = replace(INTERN, model_type="qianfan_ocr_vision")


def internvl_projector(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """A norm over joined patches, and two matrices."""
    ratio, out = view.get("downsample_ratio"), text.integer("hidden_size")
    side = int(1 / ratio) if isinstance(ratio, float) and 0 < ratio <= 1 else 2
    inputs = tower.integer("hidden_size") * side**2
    return 2 * inputs + linear(inputs, out) + linear(out, out)


INTERNVL = Architecture(
    types=("internvl",),
    config=ConfigKeys(text="text_config"),
    body=Wrapper(parts=(Part(towers=any_image(INTERN), projector=internvl_projector),)),
)
QIANFAN_OCR = INTERNVL.relative(
    "qianfan_ocr",
    body={"parts": (Part(towers=(QIANFAN_TOWER,), projector=internvl_projector),)},
    stacks={"language_model.model.encoder.layers": "decoder"},
)

ARCHITECTURES = (INTERNVL, QIANFAN_OCR)
