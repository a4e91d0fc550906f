"""Chameleon and Emu3, which see images as tokens."""

from dataclasses import replace

from ..architecture import MULTIMODAL, Architecture
from ..attention.shared import LLAMA_ATTENTION
from ..body.shared import DECODER
from ..body.uncounted import IMAGE_TOKENIZER

ARCHITECTURES = (
    Architecture(
        types=("chameleon",),
        attention=replace(LLAMA_ATTENTION, norm="heads_bias", fixed_head_dim=True),
        uncounted=IMAGE_TOKENIZER,
    ),
    MULTIMODAL.relative("emu3", uncounted=IMAGE_TOKENIZER),
    Architecture(
        types=("emu3_text_model",), attention=LLAMA_ATTENTION, body=DECODER, rotary="halves"
    ),
)
