"""Llama, and decoders that differ from it by a flag, a norm or a number."""

from ..architecture import Architecture, Conversion
from ..attention.shape import AttentionShape
from ..body.body import Body
from ..body.feed_forward import Mlp

RMS_NORM_GATED_MLP = Body(named=True)

LLAMA = Architecture(
    types=("llama",),
    attention=AttentionShape(qkv_bias="attention_bias", o_bias="attention_bias"),
    body=Body(mlp=Mlp(bias="mlp_bias"), named=True),
    rotary="halves",
    conversion=Conversion(by_layer=True, width_checked=True),
)

ARCHITECTURES = (LLAMA,)
