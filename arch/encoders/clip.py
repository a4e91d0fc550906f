"""CLIP and its kin: an encoder of text and one of images side by side, and the halves alone."""

from dataclasses import replace

from headcount.model.spec import Layer

from ..architecture import Architecture, ConfigKeys
from ..attention.layers import encoder_layers
from ..attention.shape import AttentionShape
from ..attention.shared import ENCODER_MHA, MHA_BIASED
from ..body.body import WEIGHT_AND_BIAS, Body, Layers, no_head
from ..body.encoded_images import patches_and
from ..body.image_embeddings import clip_embeddings
from ..body.masked_lm import pooler
from ..body.shared import IMAGE, PLAIN, bare
from ..body.towers import TwoTowers
from ..config_view import ConfigView
from ..gguf.form import Gguf
from ..gguf.towers import clip_towers
from ..tensors.names import BART_NAMES, BERT_NAMES
from .bert import BERT_BODY


def two_tower_layers(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """CLIP: a text and a vision encoder side by side, neither with a cache."""
    return tuple(
        replace(layer, stack=tower)
        for tower in ("text", "vision")
        for layer in encoder_layers(shape, view.child(f"{tower}_config"))
    )


def altclip_projection(view: ConfigView, layers: Layers) -> int:
    """A norm, and a projection to the width of the image model's space."""
    hidden = view.integer("hidden_size")
    return 2 * hidden + (hidden + 1) * view.integer("project_dim")


CHINESE_CLIP_NAMES = BERT_NAMES.also({**BART_NAMES.modules})

TEXT = Body(norm=WEIGHT_AND_BIAS, mlp=PLAIN, positions=("max_position_embeddings",))
ALTCLIP_TEXT = replace(BERT_BODY, more=altclip_projection)
VISION = replace(IMAGE, final_norms=2, more=clip_embeddings)

# Whose classes take what older files have in place of either nested config
OLDER_FILES = ConfigKeys(replaced=("text_config", "vision_config"))

CLIP = Architecture(
    types=("clip",),
    config=OLDER_FILES,
    attention=replace(MHA_BIASED, cross="add_cross_attention", build=two_tower_layers),
    body=TwoTowers(bodies={"text": TEXT, "vision": VISION}, classes={"CLIPModel": no_head}),
    tensors=BART_NAMES,
    rotary=None,
    gguf=(Gguf(architecture="clip", reads=clip_towers),),
)
TOWERS = CLIP.relative(attention={"cross": False}, body=None)
OWL = TOWERS.relative(config=ConfigKeys())  # reads them nowhere
# A half alone: an encoder with the names of BART.
CLIP_ENCODER = Architecture(types=(), attention=ENCODER_MHA, tensors=BART_NAMES)

ARCHITECTURES = (
    CLIP,
    TOWERS.relative(
        "metaclip_2",
        body=TwoTowers(
            bodies={"text": TEXT, "vision": VISION}, classes={"MetaClip2Model": no_head}
        ),
    ),
    OWL.relative(
        "owlvit",
        body=TwoTowers(bodies={"text": TEXT, "vision": VISION}, classes={"OwlViTModel": no_head}),
    ),
    OWL.relative(
        "owlv2",
        body=TwoTowers(bodies={"text": TEXT, "vision": VISION}, classes={"Owlv2Model": no_head}),
    ),
    TOWERS.relative(
        "altclip",
        tensors=CHINESE_CLIP_NAMES,
        body=TwoTowers(
            bodies={"text": ALTCLIP_TEXT, "vision": VISION},
            classes={"AltCLIPModel": no_head},
            widths={"text": "project_dim"},
        ),
    ),
    TOWERS.relative(
        "clipseg",
        body=TwoTowers(bodies={"text": TEXT, "vision": VISION}, classes={"CLIPSegModel": no_head}),
    ),
    TOWERS.relative(
        "chinese_clip",
        tensors=CHINESE_CLIP_NAMES,
        body=TwoTowers(
            bodies={"text": BERT_BODY, "vision": VISION}, classes={"ChineseCLIPModel": no_head}
        ),
    ),
    # The halves, in files of their own or beside a model
    CLIP_ENCODER.relative(
        *("clip_text_model", "clipseg_text_model", "groupvit_text_model"),
        *("metaclip_2_text_model", "owlv2_text_model", "owlvit_text_model"),
        body=bare(TEXT),
    ),
    CLIP_ENCODER.relative(
        *("altclip_vision_model", "chinese_clip_vision_model", "clip_vision_model"),
        *("clipseg_vision_model", "metaclip_2_vision_model"),
        *("owlv2_vision_model", "owlvit_vision_model"),
        body=bare(VISION),
        image=patches_and(1),
    ),
    CLIP_ENCODER.relative(
        *("align_text_model", "bridgetower_text_model", "chinese_clip_text_model"),
        "clap_text_model",
        tensors=BERT_NAMES,
        body=replace(BERT_BODY, classes={"Model": pooler}, default_class="Model"),
    ),
    CLIP_ENCODER.relative(
        "altclip_text_model",
        tensors=BERT_NAMES,
        body=bare(ALTCLIP_TEXT),
    ),
)
