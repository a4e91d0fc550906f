"""Query heads that are turned down, one by one, on their way to the output projection."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from ..attention_map.attention_tensors import AttentionTensors
from ..calibrate.attention_place import attention_place
from ..calibrate.layered_model import LayeredModel

# What the output projection reads of a batch, [rows, tokens, heads, v_head_dim] -> what it shall.
Gate = Callable[[torch.Tensor], torch.Tensor]


class HeadOutputs:
    """What the heads of one attention give, as its layer's output projection reads it."""

    def __init__(self, layered: LayeredModel, tensors: AttentionTensors) -> None:
        (held,) = (p for p in tensors.projections if "o" in p.parts and not p.is_bias)
        self._path = attention_place(layered, tensors).output
        self.heads = held.blocks.heads("o")

    @contextmanager
    def gated(self, layer: nn.Module, rows: int, gate: Gate) -> Iterator[None]:
        """Inside, `layer` computes with what `gate` makes of its heads, `rows` rows at a time."""

        def change(module: nn.Module, args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
            given = args[0]
            heads = given.reshape(rows, -1, self.heads, given.shape[-1] // self.heads)
            return (gate(heads).reshape(given.shape), *args[1:])

        handle = layer.get_submodule(self._path).register_forward_pre_hook(change)
        try:
            yield
        finally:
            handle.remove()


def turned_down(heads: torch.Tensor, mean: torch.Tensor, gates: torch.Tensor) -> torch.Tensor:
    """[B, T, H, dv] with each head at its `mean` [H, dv] where its gate [B, T, H] (or [B, 1, H]) is
    0, and as it is where that is 1."""
    return mean + gates[..., None] * (heads - mean)
