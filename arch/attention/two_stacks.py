"""Layers of an encoder and a decoder: put together, and changed in one of the two."""

from dataclasses import replace
from typing import Any

from headcount.model.mixers import Attention, Mixer
from headcount.model.spec import Layer

from ..config_view import ConfigView


def cache_window(view: ConfigView) -> int | None:
    """No such class has windows of its own, but its cache takes one that the config names."""
    return view.optional("sliding_window") or view.optional("attention_chunk_size")


def two_stacks(inner: list[Any], outer: list[Any]) -> tuple[Layer, ...]:
    return tuple(
        Layer(index=i, mixers=mixers, stack=stack)
        for stack, side in (("encoder", inner), ("decoder", outer))
        for i, mixers in enumerate(side)
    )


def change_stack(
    layers: tuple[Layer, ...], stack: str, index: int | None = None, **values: int
) -> tuple[Layer, ...]:
    """`layers` with `values` in the self-attention of one stack (of layer `index`, if given)."""
    return tuple(
        replace(layer, mixers=(with_values(layer.mixers[0], **values), *layer.mixers[1:]))
        if layer.stack == stack and index in (None, layer.index)
        else layer
        for layer in layers
    )


def with_values(mixer: Mixer, **values: Any) -> Attention:
    assert isinstance(mixer, Attention)
    return replace(mixer, **values)
