"""How a layer uses what its attention and its MLP give: found by changing it a little.

With a change c * delta of what a module reads, or of the layer's own output, when the attention's
output changes by delta, there is r with u = r + c * y: y is added to r there, and a new attention
can be asked for what u should be. The first such place counts: the norm behind the residual
addition, the norm of the attention's own output (r = 0), or the layer's output if attention and
MLP run in parallel.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from .layer_calls import Call
from .layer_hooks import AttentionPlace, output_changed

# How far a change may be from a multiple of delta, relative to it, in float32.
_TOLERANCE = 1e-3
_SEED = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputUse:
    """Where the output of an attention is added, times `factor`: at the input of the module at
    `path`, or in the layer's output (None)."""

    path: str | None
    factor: float


@dataclass(frozen=True, kw_only=True, slots=True)
class LastProjection:
    """The MLP's last projection, whose output times `factor` is added to the layer's: paths of the
    module and of its weight and bias, and whether the weight lies [in, out]."""

    path: str
    factor: float
    transposed: bool


class LayerUses:
    """How layers use what their attention and MLP give: found once for layers of equal modules."""

    def __init__(self) -> None:
        self._uses: dict[object, OutputUse | None] = {}
        self._projections: dict[object, LastProjection | None] = {}

    def use(
        self, layer: nn.Module, call: Call, hidden: torch.Tensor, place: AttentionPlace
    ) -> OutputUse | None:
        """See `use_of_attention`."""
        key = _modules(layer, place)
        if key not in self._uses:
            self._uses[key] = use_of_attention(layer, call, hidden, place)
        return self._uses[key]

    def last_projection(
        self, layer: nn.Module, call: Call, hidden: torch.Tensor, place: AttentionPlace
    ) -> LastProjection | None:
        """See `last_projection`."""
        key = _modules(layer, place)
        if key not in self._projections:
            self._projections[key] = last_projection(layer, call, hidden, place)
        return self._projections[key]


def _modules(layer: nn.Module, place: AttentionPlace) -> object:
    return place.output, tuple((path, type(module)) for path, module in layer.named_modules())


def use_of_attention(
    layer: nn.Module, call: Call, hidden: torch.Tensor, place: AttentionPlace
) -> OutputUse | None:
    """None where nothing the layer computes is linear in what its attention gives."""
    paths = [path for path in _outside(layer, place) if _is_reader(layer.get_submodule(path))]
    before = _inputs(layer, call, hidden, paths)
    delta = _change(before[""], hidden)
    with output_changed(layer, place.output, delta):
        after = _inputs(layer, call, hidden, paths)
    for path in [path for path in before if path] + [""]:
        factor = _factor(after[path] - before[path], delta) if path in after else None
        if factor is not None:
            return OutputUse(path=path or None, factor=factor)
        if path and not torch.equal(after[path], before[path]):
            return None  # it went through something else first
    return None


def last_projection(
    layer: nn.Module, call: Call, hidden: torch.Tensor, place: AttentionPlace
) -> LastProjection | None:
    """The last projection of a dense MLP; None where there is none, or several modules fit."""
    width = hidden.shape[-1]
    paths = [path for path in _outside(layer, place) if _makes(layer.get_submodule(path), width)]
    before = _inputs(layer, call, hidden, paths)
    delta = _change(before[""], hidden)
    found = []
    for path in [path for path in before if path and before[path].shape[:-1] == hidden.shape[:-1]]:
        with output_changed(layer, path, delta):
            after = _inputs(layer, call, hidden, [])
        factor = _factor(after[""] - before[""], delta)
        if factor is not None:
            weight = layer.get_submodule(path).get_parameter("weight")
            transposed = not isinstance(layer.get_submodule(path), nn.Linear)
            if weight.shape[0 if transposed else 1] == before[path].shape[-1]:
                found.append(LastProjection(path=path, factor=factor, transposed=transposed))
    return found[0] if len(found) == 1 else None


def _outside(layer: nn.Module, place: AttentionPlace) -> Iterator[str]:
    own = f"{place.attention}."
    for path, _ in layer.named_modules():
        if path and not f"{path}.".startswith(own) and not own.startswith(f"{path}."):
            yield path


def _is_reader(module: nn.Module) -> bool:
    return not isinstance(module, (nn.Dropout, nn.Identity, nn.ModuleList, nn.ModuleDict))


def _makes(module: nn.Module, width: int) -> bool:
    """Whether a module is one matrix that gives `width` values; Conv1D of GPT-2 has it turned."""
    if not isinstance(module, (nn.Linear, Conv1D)):
        return False
    return module.weight.shape[0 if isinstance(module, nn.Linear) else 1] == width


def _inputs(
    layer: nn.Module, call: Call, hidden: torch.Tensor, paths: list[str]
) -> dict[str, torch.Tensor]:
    """The first input of each module that is called once, in the order of the calls, and at "" the
    layer's output."""
    seen: dict[str, torch.Tensor] = {}
    again: set[str] = set()
    with ExitStack() as stack:
        for path in paths:

            def see(module: nn.Module, args: tuple[object, ...], path: str = path) -> None:
                if path in seen or not args or not isinstance(args[0], torch.Tensor):
                    again.add(path)
                else:
                    seen[path] = in_rows(args[0], hidden).clone()

            stack.callback(layer.get_submodule(path).register_forward_pre_hook(see).remove)
        output = call.run(layer, hidden)
    return {path: value for path, value in seen.items() if path not in again} | {"": output}


def in_rows(values: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    """[B, T, width] of what a layer flattened to [B * T, width] (OPT does)."""
    flat = values.dim() == 2 and values.shape[0] == hidden.shape[0] * hidden.shape[1]
    return values.unflatten(0, hidden.shape[:2]) if flat else values


def _change(output: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator().manual_seed(_SEED)
    noise = torch.randn(hidden.shape, generator=generator, dtype=hidden.dtype)
    return noise.to(output.device) * output.std()


def _factor(change: torch.Tensor, delta: torch.Tensor) -> float | None:
    if change.shape != delta.shape:
        return None
    factor = float((change * delta).sum() / delta.square().sum())
    apart = float((change - factor * delta).norm() / delta.norm())
    return factor if abs(factor) > _TOLERANCE and apart <= _TOLERANCE * abs(factor) else None
