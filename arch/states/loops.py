"""Layers that run several times with the same weights, each run with a cache of its own."""

from dataclasses import replace

from headcount.model.mixers import Attention
from headcount.model.spec import Layer

from ..attention.shape import AttentionShape, Builder
from ..config_view import ConfigView


def looped(build: Builder, start: str, end: str, passes: str) -> Builder:
    """Layers from `start` to `end` run `passes` times with the same weights; the further passes'
    caches are appended after those of all layers."""

    def again(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
        layers = build(shape, view)
        first, last = view.integer(start, minimum=0), view.integer(end)
        return repeat(layers, first, last, view.integer(passes))

    return again


def repeat(layers: tuple[Layer, ...], first: int, last: int, passes: int) -> tuple[Layer, ...]:
    """`layers`, and copies of first:last without parameters, one for each further pass."""
    copies = [layer for _ in range(passes - 1) for layer in layers[first:last]]
    return layers + tuple(
        replace(
            layer,
            index=len(layers) + i,
            mixers=tuple(
                replace(mixer, owns_parameters=False)
                for mixer in layer.mixers
                if isinstance(mixer, Attention)
            ),
        )
        for i, layer in enumerate(copies)
    )
