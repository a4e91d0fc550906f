"""Tensors without a counterpart in the class that a model moves to, and layers that lack one."""

from collections.abc import Mapping, Set

from headcount.arch.rehoming.rehome import Rehome
from headcount.arch.tensors.places import Numbered
from headcount.audit.packed import FLOATS
from headcount.sources.safetensors import TensorInfo

from ..errors import CannotConvertError
from ..source import ConversionSource
from .tensors import unknown_tensor

# (number of the layer, path in it) -> tensor
InLayers = Mapping[tuple[int, str], TensorInfo]
PARAMETERS = ("weight", "bias")


def in_layers(source: ConversionSource) -> InLayers:
    """The tensors of the decoder's layers."""
    tensors = source.checkpoint.tensors
    return {
        (standing.at.number, standing.at.inside): tensors[name]
        for name, standing in source.attention_map.standings.items()
        if standing.is_decoder
    }


def check_rehomed_tensors(source: ConversionSource, row: Rehome) -> None:
    """Raises CannotConvertError for the first tensor that the class has no place for."""
    for header in source.checkpoint.files:
        for tensor in header.tensors:
            standing = source.attention_map.standings.get(tensor.name)
            if standing is not None and standing.is_decoder:
                reason = _in_layer(source, row, tensor, standing.at)
            else:
                reason = _outside(row, tensor)
            if reason is not None:
                words = f"{reason} {row.target}" if reason.endswith(" in") else reason
                raise unknown_tensor(source, tensor, words)


def _outside(row: Rehome, tensor: TensorInfo) -> str | None:
    known = counterpart(row, tensor.name)
    if known is None:
        return "has no counterpart in"
    rows = row.skipped.get(known[0], 0) + 1
    if not tensor.shape or tensor.shape[0] < rows:
        return f"has shape {list(tensor.shape)}; {rows} rows or more were expected"
    return None


def _in_layer(
    source: ConversionSource, row: Rehome, tensor: TensorInfo, at: Numbered
) -> str | None:
    module, _, parameter = at.inside.rpartition(".")
    held = source.attention_map.by_name.get(tensor.name)
    if at.inside in row.dropped:
        return None
    if (at.number, False) not in source.attention_map.attentions:
        return "stands in a layer that the config does not have"
    if tensor.dtype not in FLOATS:
        return f"({tensor.dtype}) looks quantised"
    if parameter not in PARAMETERS:
        return "has no counterpart in"
    if held is not None and held.has_query_key_value:
        shape = f"has shape {list(tensor.shape)}; {held.blocks.rows} rows were expected"
        return None if held.fits else shape
    sides = 2 if module in row.transposed and parameter == "weight" else 1
    if len(tensor.shape) < sides:
        return f"has shape {list(tensor.shape)}; {sides} or more dimensions were expected"
    known = module in row.folds.values() or module in row.kept
    return None if known else "has no counterpart in"


def counterpart(row: Rehome, name: str) -> tuple[str, str] | None:
    """The old name that `row` knows a tensor outside all layers by, and its new one."""
    for old, new in row.outside.items():
        if name == old or name.endswith("." + old):
            return old, new
    return None


def check_rehomed_layers(
    source: ConversionSource, row: Rehome, tensors: InLayers, layers: tuple[int, ...]
) -> None:
    """Raises CannotConvertError for a layer that lacks heads of q, k or v, or what is folded."""
    for layer in layers:
        held = source.attention_map.attentions[layer, False].projections
        weights = {part for one in held if not one.is_bias for part in one.parts}
        biases = {part for one in held if one.is_bias for part in one.parts} & set("qkv")
        for parameter, parts in (("weight", weights), ("bias", biases or set("qkv"))):
            for part in sorted(set("qkv") - parts):
                modules = source.architecture.names.modules.items()
                module = next((m for m, p in modules if part in p), part)
                raise _missing(source, layer, f"{module}.{parameter}")
        for module in (name for pair in row.folds.items() for name in pair):
            if (layer, f"{module}.weight") not in tensors:
                raise _missing(source, layer, f"{module}.weight")


def check_all_made(
    source: ConversionSource, row: Rehome, written: Set[str], layers: tuple[int, ...]
) -> None:
    """Raises CannotConvertError unless every module that any layer of the target has is there in
    all of them, given or made."""
    for layer in layers:
        for name in sorted(f"{module}.weight" for module in (*row.kept.values(), *row.takes)):
            names = [row.new_layer.format(index, name) for index in layers]
            if name in row.made or written.isdisjoint(names):
                continue
            if row.new_layer.format(layer, name) not in written:
                raise CannotConvertError(
                    f"{source.folder}: layer {layer} has nothing to make {name} of: the checkpoint"
                    " is incomplete"
                )


def find_outside(source: ConversionSource, name: str) -> TensorInfo:
    """The tensor of that name outside all layers. Raises CannotConvertError."""
    for tensor in source.checkpoint.tensors.values():
        if tensor.name == name or tensor.name.endswith("." + name):
            return tensor
    raise CannotConvertError(f"{source.folder}: no {name}: the checkpoint is incomplete")


def _missing(source: ConversionSource, layer: int, inside: str) -> CannotConvertError:
    return CannotConvertError(
        f"{source.folder}: layer {layer} has no {inside}: the checkpoint is incomplete"
    )
