"""Kosmos-2 and Kosmos-2.5: decoders with BART's names that see an image in front of the text."""

from dataclasses import replace

from ..architecture import MULTIMODAL, Architecture
from ..attention.shared import MHA_BIASED, MHA_CROSSING
from ..encoders.clip import CLIP_ENCODER
from ..tensors.names import BART_NAMES
from ..tying import either_says, text_says

ARCHITECTURES = (
    MULTIMODAL.relative("kosmos-2", config={"tied": either_says}),
    Architecture(
        types=("kosmos_2_text_model",),
        attention=replace(MHA_CROSSING, norm="output_bias"),
        tensors=BART_NAMES,
    ),
    CLIP_ENCODER.relative("kosmos_2_vision_model"),
    MULTIMODAL.relative("kosmos-2.5", config={"tied": text_says}),
    Architecture(types=("kosmos_2_5_text_model",), attention=MHA_BIASED, tensors=BART_NAMES),
)
