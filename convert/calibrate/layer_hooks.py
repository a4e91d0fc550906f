"""What one layer computes on the way: seen by hooks on its modules."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from .layer_calls import Stop

Tensors = Mapping[str, torch.Tensor]
_ROUNDING = 1e-3


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionPlace:
    """Where a layer has its attention: paths of the module, and of those in it that make queries,
    keys and the output, relative to the layer. `names` maps tensors of the files to parameters,
    relative to the attention."""

    attention: str
    query: str
    key: str
    output: str
    names: Mapping[str, str]


@dataclass(kw_only=True, slots=True)
class SeenAttention:
    """Of one batch: `inputs` of the query projection [B, T, D], in cross-attention `memory` of the
    key projection [B, S, E], `heads` the input of the output projection [B, T, H*dv], `output` what
    it makes of them, `mixing` the attention weights [B, H, T, S] if the module returns them, `call`
    how the attention was called."""

    inputs: torch.Tensor | None = None
    memory: torch.Tensor | None = None
    heads: torch.Tensor | None = None
    output: torch.Tensor | None = None
    mixing: torch.Tensor | None = None
    call: tuple[tuple[Any, ...], dict[str, Any]] | None = None
    at: dict[str, torch.Tensor] = field(default_factory=dict)


@contextmanager
def watching(
    layer: nn.Module, place: AttentionPlace, *, cross: bool = False
) -> Iterator[SeenAttention]:
    """Sees the attention of `layer` for as long as the context lasts; `cross`: it is to what an
    encoder gives."""
    seen = SeenAttention()

    def attention_in(module: nn.Module, args: Any, kwargs: Any) -> None:
        seen.call = (args, dict(kwargs))

    def attention_out(module: nn.Module, args: Any, output: Any) -> None:
        seen.mixing = mixing_in(output)

    def query_in(module: nn.Module, args: Any) -> None:
        seen.inputs = args[0]

    def key_in(module: nn.Module, args: Any) -> None:
        seen.memory = args[0]

    def output_out(module: nn.Module, args: Any, output: torch.Tensor) -> None:
        seen.heads, seen.output = args[0], output

    attention = layer.get_submodule(place.attention)
    with ExitStack() as stack:
        for handle in (
            attention.register_forward_pre_hook(attention_in, with_kwargs=True),
            attention.register_forward_hook(attention_out),
            layer.get_submodule(place.query).register_forward_pre_hook(query_in),
            layer.get_submodule(place.output).register_forward_hook(output_out),
        ):
            stack.callback(handle.remove)
        if cross:
            key = layer.get_submodule(place.key).register_forward_pre_hook(key_in)
            stack.callback(key.remove)
        yield seen


@contextmanager
def input_of(
    layer: nn.Module, path: str, take: Callable[[torch.Tensor], None], *, stop: bool = False
) -> Iterator[None]:
    """Hands `take` the first input of the module at `path`; `stop`: and ends the layer there."""

    def see(module: nn.Module, args: Any) -> None:
        take(args[0])
        if stop:
            raise Stop

    handle = layer.get_submodule(path).register_forward_pre_hook(see)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def output_changed(layer: nn.Module, path: str, added: torch.Tensor) -> Iterator[None]:
    """Adds `added` to what the module at `path` gives."""
    handle = layer.get_submodule(path).register_forward_hook(
        lambda m, a, output: output + added.reshape(output.shape)
    )
    try:
        yield
    finally:
        handle.remove()


def mixing_in(output: Any) -> torch.Tensor | None:
    """The attention weights among what an attention returns: T5's also returns its biases."""
    for value in output[1:] if isinstance(output, tuple) else ():
        if isinstance(value, torch.Tensor) and value.dim() == 4 and _are_shares(value):
            return value
    return None


def _are_shares(values: torch.Tensor) -> bool:
    """Whether none is below 0, and no row's sum beyond 1 (with sinks it is less)."""
    rows = values.sum(-1)
    return bool((values >= 0).all() and (rows > 0).any() and (rows <= 1 + _ROUNDING).all())
