"""Encoder-decoders whose stacks differ from BART's and T5's."""

from dataclasses import replace
from typing import Any

from headcount.model.mixers import Attention, Mixer
from headcount.model.spec import Layer

from ..attention.layers import decoder as stack
from ..attention.layers import layer_count
from ..attention.shape import AttentionShape
from ..config_view import ConfigView
from .odd import bart, t5
from .own_parameters import second_query_key_value


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


def led(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """LED: the encoder has a second q, k and v for tokens that attend globally."""
    second = second_query_key_value(view, 0, 0)
    return _change(bart(shape, view), "encoder", other_parameters=second)


def longt5(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """LongT5: with transient-global attention the encoder has a second position bias and a norm."""
    layers = t5(shape, view)
    if view.get("encoder_attention_type") != "transient-global":
        return layers
    more = view.integer("relative_attention_num_buckets") * view.integer("num_attention_heads")
    hidden = view.integer("hidden_size")
    layers = _change(layers, "encoder", norm_parameters=hidden)
    return _change(layers, "encoder", 0, other_parameters=2 * more)


def umt5(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """UMT5: every layer has a position bias of its own."""
    more = view.integer("relative_attention_num_buckets") * view.integer("num_attention_heads")
    layers = _change(t5(shape, view), "encoder", other_parameters=more)
    return _change(layers, "decoder", other_parameters=more)


def prophetnet(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """ProphetNet: the decoder's self-attention computes relative positions from its input."""
    more = view.integer("num_buckets") * view.integer("decoder_attention_heads")
    return _change(
        bart(shape, view), "decoder", other_parameters=more * (view.integer("hidden_size") + 1)
    )


def t5gemma(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """T5Gemma: two Gemma-2 stacks; k and v of the cross-attention read the encoder's width."""
    inner, outer = view.child("encoder"), view.child("decoder")
    decoder = replace(shape, cross=True, cross_width="encoder_width")
    width = {"encoder_width": inner.integer("hidden_size")}
    return (
        *stack(replace(shape, cached=False, window=_optional_window), inner),
        *(_all_of_the_encoder(layer) for layer in stack(decoder, outer.overridden(width))),
    )


def _all_of_the_encoder(layer: Layer) -> Layer:
    """The cross-attention's cache has no window, whatever that of the self-attention beside it."""
    own, cross = layer.mixers
    return replace(layer, mixers=(own, _with(cross, window=None)))


def _optional_window(view: ConfigView) -> int | None:
    """An encoder keeps nothing, and runs without a window too."""
    return view.optional("sliding_window")


def t5gemma2(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """T5Gemma 2: the decoder attends to itself and to the encoder with the same projections, and
    keeps what they made of either."""
    seeing_all = replace(shape, cached=False, window=_optional_window)
    encoder = stack(seeing_all, view.child("encoder").child("text_config"))
    decoder = stack(replace(shape, cross=True), view.child("decoder"))
    return encoder + tuple(
        replace(layer, mixers=(own, _with(cross, has_key_value=False, has_query_output=False)))
        for layer in map(_all_of_the_encoder, decoder)
        for own, cross in [layer.mixers]
    )


def t5_decoder(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """The decoder of T5 alone (Pix2Struct, whose encoder sees an image)."""
    view = view.overridden({"num_decoder_layers": layer_count(view)})
    return tuple(layer for layer in t5(shape, view) if layer.stack == "decoder")


def bart_decoder(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """The decoder of BART alone (PP-FormulaNet, whose encoder sees an image)."""
    return tuple(layer for layer in bart(shape, view) if layer.stack == "decoder")
