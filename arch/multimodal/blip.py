"""BLIP and GIT: text models that attend to images."""

from dataclasses import replace

from ..architecture import MULTIMODAL, Architecture
from ..attention.shared import MHA_BIASED
from ..body.encoded_images import of_tower, patches_and
from ..encoders.clip import CLIP_ENCODER
from ..tensors.names import BERT_NAMES
from ..tying import text_says

ARCHITECTURES = (
    MULTIMODAL.relative(
        "blip",
        config={"written": {"encoder_hidden_size": "vision_config.hidden_size"}},
        image=of_tower(patches_and(1)),
    ),
    Architecture(
        types=("blip_text_model",),
        attention=replace(
            MHA_BIASED, cached="is_decoder", cross="is_decoder", cross_width="encoder_hidden_size"
        ),
        tensors=BERT_NAMES,
    ),
    MULTIMODAL.relative(
        "blip-2",
        "instructblip",
        "instructblipvideo",
        config={"tied": text_says},
        uncounted="its Q-Former is not counted",
    ),
    Architecture(types=("git",), attention=MHA_BIASED, tensors=BERT_NAMES, rotary="none"),
    CLIP_ENCODER.relative("git_vision_model"),
)
