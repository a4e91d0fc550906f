"""Encoder-decoders whose stacks differ from BART's and T5's."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headcount.model.mixers import Attention, Mixer
from headcount.model.spec import Layer

from .layers import decoder as stack
from .layers import layer_count
from .odd import bart, t5
from .own_parameters import second_query_key_value
from .view import ConfigView

if TYPE_CHECKING:
    from .row import Family


def _change(
    layers: tuple[Layer, ...], stack: str, index: int | None = None, **values: int
) -> tuple[Layer, ...]:
    """`layers` with `values` in the self-attention of one stack (of layer `index`, if given)."""
    return tuple(
        replace(layer, mixers=(_with(layer.mixers[0], **values), *layer.mixers[1:]))
        if layer.stack == stack and index in (None, layer.index)
        else layer
        for layer in layers
    )


def _with(mixer: Mixer, **values: Any) -> Attention:
    assert isinstance(mixer, Attention)
    return replace(mixer, **values)


def led(family: "Family", view: ConfigView) -> tuple[Layer, ...]:
    """LED: the encoder has a second q, k and v for tokens that attend globally."""
    second = second_query_key_value(view, 0, 0)
    return _change(bart(family, view), "encoder", other_parameters=second)


def longt5(family: "Family", view: ConfigView) -> tuple[Layer, ...]:
    """LongT5: with transient-global attention the encoder has a second position bias and a norm."""
    layers = t5(family, view)
    if view.get("encoder_attention_type") != "transient-global":
        return layers
    more = view.integer("relative_attention_num_buckets") * view.integer("num_attention_heads")
    hidden = view.integer("hidden_size")
    layers = _change(layers, "encoder", norm_parameters=hidden)
    return _change(layers, "encoder", 0, other_parameters=2 * more)


def umt5(family: "Family", view: ConfigView) -> tuple[Layer, ...]:
    """UMT5: every layer has a position bias of its own."""
    more = view.integer("relative_attention_num_buckets") * view.integer("num_attention_heads")
    layers = _change(t5(family, view), "encoder", other_parameters=more)
    return _change(layers, "decoder", other_parameters=more)


def prophetnet(family: "Family", view: ConfigView) -> tuple[Layer, ...]:
    """ProphetNet: the decoder's self-attention computes relative positions from its input."""
    more = view.integer("num_buckets") * view.integer("decoder_attention_heads")
    return _change(
        bart(family, view), "decoder", other_parameters=more * (view.integer("hidden_size") + 1)
    )


def t5gemma(family: "Family", view: ConfigView) -> tuple[Layer, ...]:
    """T5Gemma: two Gemma-2 stacks; k and v of the cross-attention read the encoder's width."""
    inner, outer = view.child("encoder"), view.child("decoder")
    decoder = replace(family, cross=True, cross_width="encoder_width")
    width = {"encoder_width": inner.integer("hidden_size")}
    return (
        *stack(replace(family, cached=False, window=_optional_window), inner),
        *(_all_of_the_encoder(layer) for layer in stack(decoder, outer.overridden(width))),
    )


def _all_of_the_encoder(layer: Layer) -> Layer:
    """The cross-attention's cache has no window, whatever that of the self-attention beside it."""
    own, cross = layer.mixers
    return replace(layer, mixers=(own, _with(cross, window=None)))


def _optional_window(view: ConfigView) -> int | None:
    """An encoder keeps nothing, and runs without a window too."""
    return view.optional("sliding_window")


def t5gemma2(family: "Family", view: ConfigView) -> tuple[Layer, ...]:
    """T5Gemma 2: the decoder attends to itself and to the encoder with the same projections, and
    keeps what they made of either."""
    seeing_all = replace(family, cached=False, window=_optional_window)
    encoder = stack(seeing_all, view.child("encoder").child("text_config"))
    decoder = stack(replace(family, cross=True), view.child("decoder"))
    return encoder + tuple(
        replace(layer, mixers=(own, _with(cross, has_key_value=False, has_query_output=False)))
        for layer in map(_all_of_the_encoder, decoder)
        for own, cross in [layer.mixers]
    )


def t5_decoder(family: "Family", view: ConfigView) -> tuple[Layer, ...]:
    """The decoder of T5 alone (Pix2Struct, whose encoder sees an image)."""
    view = view.overridden({"num_decoder_layers": layer_count(view)})
    return tuple(layer for layer in t5(family, view) if layer.stack == "decoder")


def bart_decoder(family: "Family", view: ConfigView) -> tuple[Layer, ...]:
    """The decoder of BART alone (PP-FormulaNet, whose encoder sees an image)."""
    return tuple(layer for layer in bart(family, view) if layer.stack == "decoder")


def two_models(family: "Family", view: ConfigView) -> tuple[Layer, ...]:
    """Any encoder with any decoder, each described by a config of its own type."""
    from .resolve import nested

    encoder, encoder_family = nested(view, "encoder")
    decoder, decoder_family = nested(view, "decoder")
    return (
        *encoder_family.build(encoder_family, encoder),
        *decoder_family.build(decoder_family, decoder),
    )
