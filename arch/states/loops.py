"""Layers that run again with the same weights, each time with a cache of its own."""

from dataclasses import replace

from headcount.model.mixers import Attention
from headcount.model.spec import Layer


def repeated(layers: tuple[Layer, ...], first: int, last: int, passes: int) -> tuple[Layer, ...]:
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
