"""Chameleon and Emu3, which see images as tokens."""

from ..architecture import Architecture, ConfigKeys
from ..attention.shape import AttentionShape
from ..body.shapes import DECODER

CHAMELEON = Architecture(
    types=("chameleon",),
    attention=AttentionShape(
        qkv_bias="attention_bias", o_bias="attention_bias", norm="heads_bias", fixed_head_dim=True
    ),
    uncounted="its image tokenizer is a convolutional network of its own",
)
EMU3 = Architecture(
    types=("emu3",),
    config=ConfigKeys(text="text_config"),
    uncounted="its image tokenizer is a convolutional network of its own",
)
EMU3_TEXT_MODEL = Architecture(
    types=("emu3_text_model",),
    attention=AttentionShape(qkv_bias="attention_bias", o_bias="attention_bias"),
    body=DECODER,
    rotary="halves",
)

ARCHITECTURES = (CHAMELEON, EMU3, EMU3_TEXT_MODEL)
