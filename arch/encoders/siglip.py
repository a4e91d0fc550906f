"""SigLIP: an encoder of text and one of images with a pooling head."""

from dataclasses import replace

from ..architecture import Architecture
from ..attention.shared import MHA_BIASED
from ..body.body import Layers, no_head
from ..body.encoded_images import patches_and
from ..body.image_towers import siglip2_embeddings, siglip_embeddings
from ..body.projectors import linear
from ..body.shared import IMAGE, bare
from ..body.towers import TwoTowers
from ..config_view import ConfigView
from ..tensors.names import BART_NAMES
from .clip import CLIP_ENCODER, TEXT, two_tower_layers


def siglip_text_head(view: ConfigView, layers: Layers) -> int:
    """A head over the last token."""
    hidden = view.integer("hidden_size")
    return linear(hidden, view.optional("projection_size") or hidden)


SIGLIP_TEXT = replace(TEXT, more=siglip_text_head)
SIGLIP_VISION = replace(IMAGE, more=siglip_embeddings)
SIGLIP2_VISION = replace(IMAGE, more=siglip2_embeddings)

SIGLIP = Architecture(
    types=("siglip",),
    attention=replace(MHA_BIASED, build=two_tower_layers),
    body=TwoTowers(
        bodies={"text": SIGLIP_TEXT, "vision": SIGLIP_VISION},
        classes={"SiglipModel": no_head},
        constants=2,
        projection=None,
    ),
    tensors=BART_NAMES,
)

ARCHITECTURES = (
    SIGLIP,
    SIGLIP.relative(
        "siglip2",
        body={
            "bodies": {"text": SIGLIP_TEXT, "vision": SIGLIP2_VISION},
            "classes": {"Siglip2Model": no_head},
        },
    ),
    CLIP_ENCODER.relative("siglip_text_model", "siglip2_text_model", body=bare(SIGLIP_TEXT)),
    CLIP_ENCODER.relative("siglip_vision_model", body=bare(SIGLIP_VISION), image=patches_and(0)),
    CLIP_ENCODER.relative("siglip2_vision_model", body=bare(SIGLIP2_VISION)),
)
