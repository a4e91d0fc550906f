"""A class that has one K/V head per query head whatever its config says, or one number for all
layers where theirs are to differ.

The result is loaded by a modelling file of our own (convert/models), which lies beside the weights:
the same tensors under the same names, with fewer K/V heads. Fused projections are stored as
[q|k|v]. Decoders only, in self- and in cross-attention (as Ainslie et al. 2023 do); an encoder
keeps no cache. A class of one number for all layers is built with it, and the file shrinks the
projections of each: `num_key_value_heads` stays what the class reads, and
`num_key_value_heads_per_layer` counts what is stored and cached.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from headcount.arch.our_types import OURS, is_grouped
from headcount.arch.registry import architecture_of
from headcount.arch.tensors.blocks import fused
from headcount.arch.tensors.names import BUFFERS
from headcount.model.mixers import Attention
from headcount.sources.identity import identity_of
from headcount.sources.safetensors import TensorInfo

from ..attention_map.attention_tensors import HeadTensors, Where
from ..plan.head_steps import placed, pooled
from ..plan.heads import Heads, HeadsByLayer, heads_of
from ..plan.pruning import KeptHeads
from ..plan.refusals.counts import check_custom, check_named_layers
from ..plan.refusals.tensors import check_custom_layers, check_custom_tensors
from ..plan.refusals.types import CUSTOM, check_held_by_ours, refuse
from ..plan.request import KeyValueHeads
from ..plan.side_files import SideFile
from ..plan.source import ConversionSource
from ..plan.steps import Dropped, Step, copy
from . import custom_config
from .home import Draft, Home
from .modeling_files import modeling_files

_FILE = modeling_files(OURS)[0]
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)|^\d+(?=\.)")


def custom(source: ConversionSource, wanted: KeyValueHeads, kept: KeptHeads) -> Home:
    """Raises CannotConvertError, and HeadCountError for a number that does not divide those that a
    layer has."""
    check_held_by_ours(source, wanted, is_pruned=bool(kept))
    refuse(source, CUSTOM)
    check_named_layers(source, wanted)
    layers = {
        place: heads_of(mixer, _of_layer(wanted, place, mixer), kept.get(place))
        for place, mixer in source.attention_map.mixers.items()
    }
    check_custom(source, wanted, layers)
    heads = HeadsByLayer(layers=layers)
    return Home(
        name="custom",
        reason=f"{_FILE.name} beside the weights holds it",
        heads=heads,
        draft=lambda: _draft(source, heads),
        config=lambda: _config(source, heads),
    )


def _of_layer(wanted: KeyValueHeads, place: Where, mixer: Attention) -> int:
    return wanted if isinstance(wanted, int) else wanted.get(place[0], mixer.num_key_value_heads)


def _draft(source: ConversionSource, heads: HeadsByLayer) -> Draft:
    """One step per tensor but buffers."""
    buffers = {name for name in source.attention_map.standings if _is_buffer(source, name)}
    check_custom_tensors(source, heads, buffers)
    check_custom_layers(source)
    steps = {
        header.path.name: tuple(
            _step(source, heads, tensor) for tensor in header.tensors if tensor.name not in buffers
        )
        for header in source.checkpoint.files
    }
    dropped = (t for h in source.checkpoint.files for t in h.tensors if t.name in buffers)
    identity = identity_of(_FILE.stat())
    return Draft(
        steps=steps,
        layers=tuple(sorted({held.place.index for _, held in _pooled(source)})),
        dropped=tuple(Dropped(source=t, reason="a buffer, not a parameter") for t in dropped),
        side_files=(SideFile(name=_FILE.name, path=_FILE, identity=identity),),
    )


def _is_buffer(source: ConversionSource, name: str) -> bool:
    """Whether it is a mask or a rotary table beside the attention, which old files carry."""
    standing, names = source.attention_map.standings[name], source.architecture.names
    if standing.is_decoder and standing.place is not None:
        return False
    inside = standing.at.inside
    return any(inside.startswith(n) and inside.removeprefix(n) in BUFFERS for n in names.near)


def _pooled(source: ConversionSource) -> Iterator[tuple[TensorInfo, HeadTensors]]:
    """The projections that hold K or V heads, with their biases, in the order of the files."""
    for tensor in source.checkpoint.tensors.values():
        held = source.attention_map.by_name.get(tensor.name)
        if held is not None and held.is_projection and held.has_key_value:
            yield tensor, held


def _pruned(source: ConversionSource) -> Iterator[tuple[TensorInfo, HeadTensors]]:
    """The same with those of q and o, which lose heads, too."""
    for tensor in source.checkpoint.tensors.values():
        held = source.attention_map.by_name.get(tensor.name)
        if held is not None and held.is_projection and held.parts:
            yield tensor, held


def _step(source: ConversionSource, heads: HeadsByLayer, tensor: TensorInfo) -> Step:
    held = source.attention_map.by_name.get(tensor.name)
    own = None if held is None else heads.of(held.place.index, cross=held.place.cross)
    if held is None or own is None or not held.is_projection:
        return copy(tensor)
    if held.has_key_value:
        order = "".join(sorted(held.parts, key="gqkv".index))
        counts = {**dict.fromkeys("gq", own.padded_heads), **dict.fromkeys("kv", own.after)}
        return pooled(held, own, held.blocks.with_heads(counts).only(order))
    step = placed(held, own) if own.is_pruned else None
    return step or copy(tensor)


def _config(
    source: ConversionSource, heads: HeadsByLayer
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The config for the modelling file."""
    made: dict[str, Mapping[str, Any]] = {}
    kept = _kept_in_class(source, heads)
    for tensor, held in _pruned(source) if kept else _pooled(source):
        path = _NUMBER.sub("*", tensor.name.rpartition(".")[0], count=1)
        own = heads.of(held.place.index, cross=held.place.cross)
        assert own is not None
        made |= _described(source, path, held, own, is_pruned=bool(kept))
    by_layer = source.whole.conversion.by_layer
    built = class_heads(source, next(iter(heads.layers.values()))) if by_layer else None
    return custom_config.config_of_ours(source, heads, built, made, kept)


def _kept_in_class(source: ConversionSource, heads: HeadsByLayer) -> dict[int, tuple[int, ...]]:
    """Layer -> the query heads that are stored, as the class numbers them, where some are pruned
    now or were before."""
    before = source.config.get(custom_config.KEPT) or {}
    found = {}
    for (index, _), own in sorted(heads.layers.items()):
        old = before.get(str(index))
        if old is not None:
            found[index] = tuple(old[head] for head in own.staying.query)
        elif own.kept is not None:
            found[index] = own.kept
    return found


def _described(
    source: ConversionSource, path: str, held: HeadTensors, own: Heads, *, is_pruned: bool
) -> dict[str, dict[str, Any]]:
    """What the class expects of the projections in the tensor, as the modelling file reads it: by
    the path of their modules, which may be several."""
    order, repeats = held.place.part or "", 1
    if order == "qkv":
        order, repeats = _fused(source, own)
    split = source.architecture.names.split.get(held.module)
    stem = path.removesuffix(held.module)
    parts = {path: order} if split is None else {stem + m: p for p, m in split.items()}
    of_class: dict[str, Any] = {"heads": class_heads(source, own), "repeats": repeats}
    if is_pruned:
        of_class["query_heads"] = _class_query_heads(source, own)
    return {module: {"parts": part, **of_class} for module, part in parts.items()}


def _fused(source: ConversionSource, own: Heads) -> tuple[str, int]:
    """Order and repeats of a fused projection in the class of transformers, which the modelling
    file makes one for; that in our own files is [q|k|v]."""
    known = architecture_of(source.architecture.types[0])
    names = source.architecture.names if known is None else known.names
    mixer = next(iter(source.attention_map.mixers.values()))
    count = _class_query_heads(source, own)
    every = replace(mixer, num_attention_heads=count).with_key_value_heads(count)
    layout = fused(names.fused_by(source.config), every)
    return "".join(block.part for block in layout.blocks), layout.repeats


def _class_query_heads(source: ConversionSource, heads: Heads) -> int:
    """The query heads that the class builds, which an earlier pruning may have kept fewer of."""
    projections = source.config.get("grouped_projections") or {}
    told = (made["query_heads"] for made in projections.values() if "query_heads" in made)
    return int(next(told, heads.num_attention_heads))


def class_heads(source: ConversionSource, heads: Heads) -> int:
    """The K/V heads that the class builds in a layer of `heads`, before it is shrunk."""
    if not source.whole.conversion.by_layer:
        return _class_query_heads(source, heads)
    ours = is_grouped(source.model_type)
    return int(source.config["num_key_value_heads"]) if ours else heads.before
