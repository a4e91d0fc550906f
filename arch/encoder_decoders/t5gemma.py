"""T5Gemma: an encoder and a decoder made of Gemma's layers."""

from dataclasses import replace

from headcount.model.spec import Layer

from ..architecture import Architecture, Conversion
from ..attention.layer_kinds import full_every
from ..attention.layers import decoder_layers, halved_if_two_sided
from ..attention.shape import AttentionShape
from ..attention.shared import LLAMA_ATTENTION
from ..attention.two_stacks import with_values
from ..body.body import no_head
from ..body.shared import SANDWICH
from ..body.towers import TwoTowers
from ..config_view import ConfigView
from .bart import SEQ2SEQ


def t5gemma_layers(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """T5Gemma: two Gemma-2 stacks; k and v of the cross-attention read the encoder's width."""
    inner, outer = view.child("encoder"), view.child("decoder")
    decoder = replace(shape, cross=True, cross_width="encoder_width")
    width = {"encoder_width": inner.integer("hidden_size")}
    return (
        *decoder_layers(replace(shape, cached=False, window=_optional_window), inner),
        *(
            _seeing_the_whole_encoder(layer)
            for layer in decoder_layers(decoder, outer.overridden(width))
        ),
    )


def _seeing_the_whole_encoder(layer: Layer) -> Layer:
    """The cross-attention's cache has no window, whatever that of the self-attention beside it."""
    own, cross = layer.mixers
    return replace(layer, mixers=(own, with_values(cross, window=None)))


def _optional_window(view: ConfigView) -> int | None:
    """An encoder keeps nothing, and runs without a window too."""
    return view.optional("sliding_window")


def t5gemma2_layers(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """T5Gemma 2: the decoder attends to itself and to the encoder with the same projections, and
    keeps what they made of either."""
    seeing_all = replace(shape, cached=False, window=_optional_window)
    encoder = decoder_layers(seeing_all, view.child("encoder").child("text_config"))
    decoder = decoder_layers(replace(shape, cross=True), view.child("decoder"))
    return encoder + tuple(
        replace(
            layer, mixers=(own, with_values(cross, has_key_value=False, has_query_output=False))
        )
        for layer in map(_seeing_the_whole_encoder, decoder)
        for own, cross in [layer.mixers]
    )


GEMMA_LIKE = Architecture(
    types=(),
    attention=replace(LLAMA_ATTENTION, key_value_keys=("decoder.num_key_value_heads",)),
    rotary="halves",
)

ARCHITECTURES = (
    GEMMA_LIKE.relative(
        "t5gemma",
        attention={"kinds": full_every(2), "build": t5gemma_layers},
        body=TwoTowers(
            bodies={"encoder": SANDWICH, "decoder": replace(SANDWICH, norms=6)},
            classes={**SEQ2SEQ, "T5GemmaModel": no_head},
            constants=0,
            projection=None,
            key="{stack}",
        ),
        conversion=Conversion(width_checked=True),
    ),
    GEMMA_LIKE.relative(
        "t5gemma2",
        attention={
            "norm": "head",
            "kinds": full_every(6, "sliding_window_pattern"),
            "window": halved_if_two_sided,
            "build": t5gemma2_layers,
        },
        conversion=Conversion(width_checked=True),
        rotary=None,
    ),
)
