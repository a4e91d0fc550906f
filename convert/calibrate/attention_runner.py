"""An attention by itself: from what it is given, and weights by heads, to what its heads give."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.func import functional_call

from ..attention_map.attention_tensors import AttentionTensors
from ..merge.attention_weights import AttentionWeights, Merged
from ..plan.errors import CannotConvertError
from ..plan.heads import StayingHeads
from ..rewrite.tensors import Read, tensors_of
from .layer_calls import Stop
from .layer_hooks import AttentionPlace, SeenAttention, Tensors, mixing_in

_SAME = 1e-4  # how far two runs may be apart, relative, that differ in rounding only


def given(seen: SeenAttention) -> torch.Tensor:
    """The hidden states that an attention was called with."""
    assert seen.call is not None
    found: torch.Tensor = with_hidden(seen.call)[0]
    return found


# How a module was called: its arguments by place and by name.
ModuleCall = tuple[tuple[Any, ...], dict[str, Any]]


class AttentionRunner:
    """The source's own attention module of one layer, with other weights. `called` learns how the
    layer calls it; of every further batch only the hidden states differ. Of its heads only those
    that are `staying` are given, None: all."""

    # How many batches the call is learnt of: of one, and another shows that it is the same.
    learns: int | None = 2

    def __init__(
        self,
        layer: nn.Module,
        place: AttentionPlace,
        tensors: AttentionTensors,
        read: Read,
        staying: StayingHeads | None,
    ) -> None:
        self._module = layer.get_submodule(place.attention)
        self._output = layer.get_submodule(place.output)
        self._prefix = f"{place.attention}."
        self._names, self._tensors, self._read = place.names, tensors, read
        self._staying = staying
        self._call: ModuleCall | None = None
        self._fused = False

    @contextmanager
    def fast(self) -> Iterator[None]:
        """Attention weights are not made inside, where this class gives the same without."""
        config = getattr(self._module, "config", None)
        if config is None or not self._fused:
            yield
            return
        before = config._attn_implementation
        config._attn_implementation = "sdpa"
        try:
            yield
        finally:
            config._attn_implementation = before

    def called(self, batch: slice, seen: SeenAttention) -> None:
        """Learns the call from one batch. Raises CannotConvertError if another batch shows that
        more than the hidden states matters."""
        assert seen.call is not None and seen.heads is not None
        if self._call is None:
            self._call = seen.call
            self._fused = True
            self._fused = self._is_same(batch, seen)
            return
        if not self._is_same(batch, seen):
            raise CannotConvertError(
                f"layer {self._tensors.where[0]}: its attention is given more of the text than"
                " hidden states: use --method merge without --calibration"
            )

    def _call_of(self, batch: slice) -> ModuleCall:
        """Whose hidden states are to be replaced."""
        assert self._call is not None
        return self._call

    def _is_same(self, batch: slice, seen: SeenAttention) -> bool:
        """Whether the attention by itself gives what it gave in its layer."""
        assert seen.heads is not None
        try:
            again = self._run(batch, given(seen), {})
        except ValueError:  # transformers refuses sdpa where it would leave something out
            return False
        return bool((again - seen.heads).norm() <= _SAME * seen.heads.norm())

    def heads(
        self, batch: slice, hidden: torch.Tensor, weights: AttentionWeights, merged: Merged
    ) -> torch.Tensor:
        """[B, T, H*dv]: what all heads of `weights` give, which lie as those of `merged`, before
        the output projection. Differentiable."""
        return self.those_staying(self._run(batch, hidden, self._inside(weights, merged)))

    def those_staying(self, heads: torch.Tensor) -> torch.Tensor:
        """Of all that the module's heads give, [..., H*dv], that of the heads that stay."""
        if self._staying is None:
            return heads
        shape = (self._tensors.mixer.num_attention_heads, -1)
        chosen: torch.Tensor = heads.unflatten(-1, shape)[..., list(self._staying.query), :]
        return chosen.flatten(-2)

    def mixing(
        self, batch: slice, hidden: torch.Tensor, weights: AttentionWeights, merged: Merged
    ) -> torch.Tensor:
        """[B, H, T, T]: the attention weights. Raises CannotConvertError if the module does not
        return them."""
        _, args, kwargs = with_hidden(self._call_of(batch), hidden)
        output = functional_call(self._module, self._inside(weights, merged), args, kwargs)
        found = mixing_in(output)
        if found is None:
            raise CannotConvertError(
                f"layer {self._tensors.where[0]}: its attention does not give its weights, which"
                " a temperature is fitted to: leave out the temperature"
            )
        return found if self._staying is None else found[:, list(self._staying.query)]

    def _inside(self, weights: AttentionWeights, merged: Merged) -> dict[str, torch.Tensor]:
        made = tensors_of(
            self._tensors, weights, self._read, merged.order, merged.groups, self._staying
        )
        inside = {self._names[name]: value for name, value in made.items()}
        own = len(self._prefix)
        return {path[own:]: v for path, v in inside.items() if path.startswith(self._prefix)}

    def _run(self, batch: slice, hidden: torch.Tensor, tensors: Tensors) -> torch.Tensor:
        _, args, kwargs = with_hidden(self._call_of(batch), hidden)
        found: list[torch.Tensor] = []

        def stop(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            found.append(inputs[0])
            raise Stop

        handle = self._output.register_forward_pre_hook(stop)
        try:
            with self.fast():
                functional_call(self._module, dict(tensors), args, kwargs)
        except Stop:
            return found[0]
        finally:
            handle.remove()
        raise AssertionError("the output projection was not run")


def output_of(heads: torch.Tensor, weights: AttentionWeights) -> torch.Tensor:
    """[B, T, D] of what the heads give, [B, T, H*dv]."""
    made = heads @ weights.o.transpose(1, 2).flatten(0, 1)
    return made if weights.o_bias is None else made + weights.o_bias


def with_output(weights: AttentionWeights, change: torch.Tensor) -> AttentionWeights:
    """`weights` whose output projection is changed by [H*dv, D], or [H*dv + 1, D] with its bias."""
    count, _, value_dim = weights.o.shape
    rows = change[: count * value_dim].to(weights.o.dtype)
    o = weights.o + rows.unflatten(0, (count, value_dim)).transpose(1, 2)
    if weights.o_bias is None:
        return replace(weights, o=o)
    return replace(weights, o=o, o_bias=weights.o_bias + change[-1].to(weights.o.dtype))


def with_hidden(
    call: ModuleCall, hidden: torch.Tensor | None = None
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The hidden states of a call, and the call with `hidden` in their place."""
    args, kwargs = call
    if args and isinstance(args[0], torch.Tensor):
        return args[0], (hidden, *args[1:]), kwargs
    name = (
        "hidden_states"
        if "hidden_states" in kwargs
        else next(key for key, value in kwargs.items() if isinstance(value, torch.Tensor))
    )
    return kwargs[name], args, {**kwargs, name: hidden}
