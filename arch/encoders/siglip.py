"""SigLIP: an encoder of text and one of images with a pooling head."""

from dataclasses import replace

from ..architecture import Architecture
from ..attention.mha import ENCODER_HEADS, MHA_BIASED
from ..body.body import Layers, no_head
from ..body.image_towers import siglip, siglip2
from ..body.projectors import linear
from ..body.shapes import IMAGE
from ..body.towers import TwoTowers
from ..config_view import ConfigView
from ..tensors.names import BART
from .clip import TEXT, two_towers


def siglip_text(view: ConfigView, layers: Layers) -> int:
    """A head over the last token."""
    hidden = view.integer("hidden_size")
    return linear(hidden, view.optional("projection_size") or hidden)


SIGLIP_TEXT = replace(TEXT, extra=siglip_text)
SIGLIP = Architecture(
    types=("siglip",),
    attention=replace(MHA_BIASED, build=two_towers),
    body=TwoTowers(
        bodies={"text": SIGLIP_TEXT, "vision": replace(IMAGE, extra=siglip)},
        classes={"SiglipModel": no_head},
        constants=2,
        projection=None,
    ),
    tensors=BART,
)

ARCHITECTURES = (
    SIGLIP,
    SIGLIP.relative(
        "siglip2",
        body={
            "bodies": {"text": SIGLIP_TEXT, "vision": replace(IMAGE, extra=siglip2)},
            "classes": {"Siglip2Model": no_head},
        },
    ),
    Architecture(
        types=(
            "siglip_text_model",
            "siglip_vision_model",
            "siglip2_text_model",
            "siglip2_vision_model",
        ),
        attention=ENCODER_HEADS,
        tensors=BART,
    ),
)
