"""InternVL and Qianfan-OCR: a norm and two matrices over joined patches."""

from dataclasses import replace

from ..architecture import MULTIMODAL
from ..body.image_towers import INTERNVL_TOWER, any_image
from ..body.projectors import linear
from ..body.towers import one_tower
from ..config_view import ConfigView


def internvl_projector(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """A norm over joined patches, and two matrices."""
    ratio = view.positive("downsample_ratio", minimum=0.01, maximum=1)
    side = 2 if ratio is None else int(1 / ratio)
    inputs, out = tower.integer("hidden_size") * side**2, text.integer("hidden_size")
    return 2 * inputs + linear(inputs, out) + linear(out, out)


QIANFAN_TOWER = replace(INTERNVL_TOWER, model_type="qianfan_ocr_vision")

INTERNVL = MULTIMODAL.relative(
    "internvl", body=one_tower(*any_image(INTERNVL_TOWER), projector=internvl_projector)
)

ARCHITECTURES = (
    INTERNVL,
    INTERNVL.relative(
        "qianfan_ocr",
        body=one_tower(QIANFAN_TOWER, projector=internvl_projector),
        stacks={"language_model.model.encoder.layers": "decoder"},
    ),
)
