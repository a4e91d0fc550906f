"""Steps for a class that has one K/V head per query head whatever its config says.

The result is loaded by a modelling file of our own (convert/models), which lies beside the weights:
the same tensors under the same names, with fewer K/V heads. Fused projections are stored as
[q|k|v]. Decoders only, in self- and in cross-attention (as Ainslie et al. 2023 do); an encoder
keeps no cache. What a class has near attention and the family table does not name is refused.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from headcount.arch.our_types import GROUPED, base_type
from headcount.arch.registry import architecture_of
from headcount.arch.tensors.names import BUFFERS
from headcount.arch.tensors.places import PLAIN, Place
from headcount.model.mixers import Attention
from headcount.sources.safetensors import TensorInfo

from . import custom_config
from .by_layer import class_heads
from .draft import Draft, Heads, HeadsByLayer, Where
from .errors import CannotConvertError, HeadCountError
from .layout import Block, Blocks, interleaved, query_key_value
from .native import FAR, FLOATS, NEAR
from .native_heads import attentions, heads_of, no_fit
from .plan import SideFile
from .request import KeyValueHeads
from .source import Source
from .steps import Dropped, Pool, Step, copy

MODELING_FILE = Path(__file__).parent.parent / "models" / f"{custom_config.MODULE}.py"

# `TensorNames.fused` -> order of the parts in a fused projection, and how often it stands there
# (None: once per head).
_FUSED: Mapping[str, tuple[str, int | None]] = {
    "parts": ("qkv", 1),
    "heads": ("qkv", None),
    "quarters": ("qvk", 4),
}
_POOLED = ("k", "v", "kv", "qkv", "gqkv")
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)|^\d+(?=\.)")


def heads(source: Source, wanted: KeyValueHeads) -> HeadsByLayer:
    """The heads of each attention of the decoder. Raises CannotConvertError, and HeadCountError for
    a number that does not divide those that a layer has."""
    where = f"{source.folder}: {source.audit.spec.model_type}"
    found = attentions(source.audit.spec)
    for mixer in found.values():
        other = any(not state.key_value for state in mixer.states)
        if other or mixer.query_gate or mixer.head_dim != mixer.v_head_dim:
            raise CannotConvertError(f"{where}: its attention keeps more than K and V heads")
    if not isinstance(wanted, int) and any(layer.home for layer in source.audit.spec.layers):
        raise CannotConvertError(f"{where}: the numbers of its layers are those of several lists")
    if not isinstance(wanted, int) and (strangers := set(wanted) - {index for index, _ in found}):
        raise HeadCountError(f"{where}: layer {min(strangers)} has no K/V heads of its own")
    layers = {
        place: heads_of(mixer, _of_layer(wanted, place, mixer)) for place, mixer in found.items()
    }
    for (index, _), own in layers.items():
        if own.after > own.before or own.is_padded:
            layer = "" if isinstance(wanted, int) else f": layer {index}"
            raise no_fit(own.before, own.after, where + layer)
    if not any(own.is_changed for own in layers.values()):
        own = next(iter(layers.values()))
        raise no_fit(own.before, own.after, where)
    return HeadsByLayer(layers=layers)


def _of_layer(wanted: KeyValueHeads, place: Where, mixer: Attention) -> int:
    return wanted if isinstance(wanted, int) else wanted.get(place[0], mixer.num_key_value_heads)


def steps(source: Source, heads: HeadsByLayer) -> Draft:
    """One step per tensor but buffers. Raises CannotConvertError naming what is not known."""
    builder = _Builder(source, heads)
    by_file = {
        header.path.name: tuple(s for t in header.tensors for s in builder.steps(t))
        for header in source.checkpoint.files
    }
    builder.check_layers()
    return Draft(
        steps=by_file,
        layers=tuple(sorted({index for index, _, _ in builder.pooled})),
        dropped=tuple(builder.dropped),
        side_files=(_modelling_file(),),
    )


def _modelling_file() -> SideFile:
    size = MODELING_FILE.stat().st_size
    return SideFile(name=MODELING_FILE.name, path=MODELING_FILE, nbytes=size)


def config(source: Source, heads: HeadsByLayer) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The config for the modelling file. Raises CannotConvertError."""
    builder = _Builder(source, heads)
    made: dict[str, Mapping[str, Any]] = {}
    for tensor in source.checkpoint.tensors.values():
        spot = builder.place(tensor)
        if spot is not None and spot.part in _POOLED:
            path = _NUMBER.sub("*", tensor.name.rpartition(".")[0], count=1)
            made |= builder.described(path, spot)
    return custom_config.config(source, heads, made)


class _Builder:
    """The steps of a source's tensors; remembers which projections it saw."""

    def __init__(self, source: Source, heads: HeadsByLayer) -> None:
        self.source = source
        self.heads = heads
        self.names = source.audit.architecture.names
        self.pooled: dict[tuple[int, bool, str], None] = {}
        self.dropped: list[Dropped] = []

    def place(self, tensor: TensorInfo) -> Place | None:
        """Where in an attention of the decoder the tensor stands; None: in none."""
        standing = self.source.standings.get(tensor.name)
        return standing.place if standing is not None and standing.is_decoder else None

    def steps(self, tensor: TensorInfo) -> Iterator[Step]:
        spot = self.place(tensor)
        if spot is None:
            yield from self._outside(tensor)
        elif spot.part in _POOLED:
            if spot.parameter == "weight":
                self.pooled[spot.index, spot.cross, spot.part] = None
            yield self._pool(tensor, spot, spot.part)
        elif spot.part in ("q", "o", "norm", "other", "") and _last(spot) in PLAIN:
            yield copy(tensor)
        else:
            raise self._unknown(tensor, "is not known in this architecture")

    def described(self, path: str, spot: Place) -> dict[str, dict[str, Any]]:
        """What the class expects of the projections in the tensor, as the modelling file reads it:
        by the path of their modules, which may be several."""
        heads = self._heads(spot)
        fused = _fused(self.source, heads)
        order, repeats = fused if spot.part == "qkv" else (spot.part or "", 1)
        split = self.names.split.get(spot.module)
        stem = path.removesuffix(spot.module)
        parts = {path: order} if split is None else {stem + m: p for p, m in split.items()}
        count = class_heads(self.source, heads)
        return {m: {"parts": p, "heads": count, "repeats": repeats} for m, p in parts.items()}

    def _heads(self, spot: Place) -> Heads:
        heads = self.heads.of(spot.index, cross=spot.cross)
        if heads is None:
            raise CannotConvertError(
                f"{self.source.folder}: config.json says nothing of {spot.module} in layer"
                f" {spot.index}, which the weights have"
            )
        return heads

    def check_layers(self) -> None:
        """Raises CannotConvertError unless every decoder layer has its k and v."""
        for layer in self.source.audit.spec.layers:
            if layer.stack != "decoder" or layer.is_again:
                continue
            for mixer in layer.mixers:
                cross = mixer.kind == "cross_attention"
                found = {p for i, c, p in self.pooled if (i, c) == (layer.index, cross)}
                if found not in ({"k", "v"}, {"qkv"}, {"kv"}, {"gqkv"}):
                    raise CannotConvertError(
                        f"{self.source.folder}: decoder layer {layer.index} has no k and v"
                        f"{' of its cross-attention' if cross else ''} of a name that is known:"
                        " the checkpoint is incomplete or of another layout"
                    )

    def _pool(self, tensor: TensorInfo, spot: Place, part: str) -> Step:
        if spot.parameter not in PLAIN or tensor.dtype not in FLOATS:
            raise self._unknown(tensor, f"({tensor.dtype}) looks quantised or adapted: not pooled")
        weight = spot.parameter == "weight"
        heads = self._heads(spot)
        layout, target = _layouts(self.source, heads, part)
        axis = -1 if self.names.transposed and weight else 0
        layout, target = replace(layout, axis=axis), replace(target, axis=axis)
        if len(tensor.shape) != (2 if weight else 1) or tensor.shape[axis] != layout.rows:
            raise self._unknown(
                tensor,
                f"has shape {list(tensor.shape)}; {layout.rows}"
                f" {'columns' if axis else 'rows'} were expected",
            )
        shape = list(tensor.shape)
        shape[axis] = target.rows
        return Step(
            name=tensor.name,
            dtype=tensor.dtype,
            shape=tuple(shape),
            sources=(tensor,),
            action=Pool(
                layer=spot.index,
                role="weight" if weight else "bias",
                members=heads.members,
                source=layout,
                target=target,
                cross=spot.cross,
            ),
        )

    def _outside(self, tensor: TensorInfo) -> Iterator[Step]:
        """A buffer that old files carry, an encoder's tensor, or one that is not attention."""
        standing = self.source.standings.get(tensor.name)
        inside = "" if standing is None else standing.at.inside
        if self._is_buffer(inside):
            self.dropped.append(Dropped(source=tensor, reason="a buffer, not a parameter"))
            return
        if standing is not None and not standing.is_tower:
            if standing.place is not None:
                raise self._unknown(tensor, f"belongs to {standing.owner}")
            if NEAR.search(inside) and not FAR.search(inside):
                raise self._unknown(tensor, "looks like attention but is not known")
        yield copy(tensor)

    def _is_buffer(self, inside: str) -> bool:
        return any(
            inside.startswith(near) and inside.removeprefix(near) in BUFFERS
            for near in self.names.near
        )

    def _unknown(self, tensor: TensorInfo, what: str) -> CannotConvertError:
        return CannotConvertError(
            f"{self.source.folder / tensor.file}: tensor {tensor.name!r} {what}"
        )


def _last(spot: Place) -> str:
    return spot.parameter.rpartition(".")[2]


def _fused(source: Source, heads: Heads) -> tuple[str, int]:
    """Order and repeats of a fused projection in the class of transformers, which the modelling
    file makes one for; that in our own files is [q|k|v]."""
    found = architecture_of(base_type(source.text_type))
    names = found.names if found is not None else source.audit.architecture.names
    order, repeats = _FUSED[names.fused_by(source.config)]
    return order, repeats or heads.num_attention_heads


def _layouts(source: Source, heads: Heads, part: str) -> tuple[Blocks, Blocks]:
    """The layout of a projection that holds K or V, in the source and in the output."""
    q, before, after, d = heads.num_attention_heads, heads.before, heads.after, heads.head_dim
    if part == "gqkv":  # the gate has a head for each of q, in front of them, and is kept like them
        kept = Block(part="q", heads=2 * q, rows=d)
        source_rows, target_rows = (_rows("kv", n, d).blocks for n in (before, after))
        return Blocks(blocks=(kept, *source_rows)), Blocks(blocks=(kept, *target_rows))
    if part != "qkv":
        return _rows(part, before, d), _rows(part, after, d)
    order, repeats = _fused(source, heads)
    each = q // repeats
    ours = source.audit.spec.model_type.startswith(GROUPED)  # stored as [q|k|v] already
    if ours or repeats == 1:
        whole = query_key_value(q, d, key_value_heads=before)
    else:
        whole = interleaved(d, repeats=repeats, query_heads=each, key_value_heads=each, order=order)
    return whole, query_key_value(q, d, key_value_heads=after)


def _rows(parts: str, heads: int, head_dim: int) -> Blocks:
    return Blocks(blocks=tuple(Block(part=part, heads=heads, rows=head_dim) for part in parts))
