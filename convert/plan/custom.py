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

from headcount.audit.family import odd, two_stacks
from headcount.audit.family.layers import as_query_heads
from headcount.audit.family.names import BUFFERS
from headcount.audit.family.places import PLAIN, Place, place, stack_of
from headcount.audit.family.resolve import GROUPED, base_type
from headcount.audit.mixers import Attention
from headcount.audit.source.safetensors import TensorInfo

from . import custom_config
from .draft import Draft, Heads
from .errors import CannotConvertError
from .layout import Block, Blocks, interleaved, query_key_value
from .model_classes import model_classes
from .native import FAR, FLOATS, NEAR, TOWERS
from .plan import SideFile
from .source import Source
from .steps import Dropped, Pool, Step, copy

MODELING_FILE = Path(__file__).parent.parent / "models" / f"{custom_config.MODULE}.py"

# Rules of rows whose class does not read num_key_value_heads: by count, and by builder.
_COUNTS = (as_query_heads, odd.multi_query_heads, odd.falcon_key_value_heads)
_BUILDERS = (odd.bart, odd.t5, two_stacks.led, two_stacks.longt5, two_stacks.umt5)
# model_type -> order of the parts in its fused projection, and how often it stands there (None:
# once per head). Without a row: [q|k|v].
FUSED: Mapping[str, tuple[str, int | None]] = {
    "bloom": ("qkv", None),
    "codegen": ("qvk", 4),
    "falcon": ("qkv", None),
    "gpt_bigcode": ("qkv", None),
    "gpt_neox": ("qkv", None),
    "gpt_neox_japanese": ("qkv", None),
    "persimmon": ("qkv", None),
}
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)|^\d+(?=\.)")


def holds(source: Source) -> bool:
    """Whether the source's class keeps one K/V head per query head, in every layer of its decoder,
    and ignores num_key_value_heads; or is already one of ours."""
    spec, family = source.audit.spec, source.audit.family
    if spec.model_type.startswith(GROUPED):
        return True
    ignores = family.key_value_heads in _COUNTS or family.build in _BUILDERS
    mixers = _cached(source)
    mha = all(m.num_key_value_heads == m.num_attention_heads for m in mixers)
    return bool(ignores and mixers and mha and model_classes(spec.model_type))


def the_mixer(source: Source) -> Attention:
    """The attention that all layers of the decoder have in common. Raises CannotConvertError."""
    mixers = _cached(source)
    shapes = {(m.num_attention_heads, m.num_key_value_heads, m.head_dim) for m in mixers}
    plain = all(m.has_key_value and m.has_key and m.has_value for m in mixers)
    plain &= not any(m.states or m.query_gate or m.head_dim != m.v_head_dim for m in mixers)
    if len(shapes) != 1 or not plain:
        raise CannotConvertError(
            f"{source.folder}: {source.audit.spec.model_type}: the attentions of its decoder differ"
            " in heads, or keep more than K and V: one num_key_value_heads cannot say them"
        )
    return mixers[0]


def _cached(source: Source) -> list[Attention]:
    """The attentions that keep a cache; none where a layer keeps something else."""
    layers = [layer for layer in source.audit.spec.layers if layer.stack == "decoder"]
    mixers = [mixer for layer in layers for mixer in layer.mixers]
    if not all(isinstance(mixer, Attention) and mixer.cached for mixer in mixers):
        return []
    return [mixer for mixer in mixers if isinstance(mixer, Attention)]


def steps(source: Source, heads: Heads) -> Draft:
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


def config(source: Source, heads: Heads) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The config for the modelling file. Raises CannotConvertError."""
    builder = _Builder(source, heads)
    made: dict[str, Mapping[str, Any]] = {}
    for tensor in source.checkpoint.tensors.values():
        spot = builder.place(tensor)
        if spot is not None and spot.part in builder.layouts:
            path = _NUMBER.sub("*", tensor.name.rpartition(".")[0], count=1)
            made[path] = builder.described(spot.part)
    return custom_config.config(source, heads, made)


class _Builder:
    """The steps of a source's tensors; remembers which projections it saw."""

    def __init__(self, source: Source, heads: Heads) -> None:
        self.source = source
        self.heads = heads
        self.names = source.audit.family.names
        self.layouts = _layouts(source, heads)
        self.pooled: dict[tuple[int, bool, str], None] = {}
        self.dropped: list[Dropped] = []
        stacks = {layer.stack for layer in source.audit.spec.layers}
        self.alone = "encoder" not in stacks

    def place(self, tensor: TensorInfo) -> Place | None:
        """The tensor's place; a BERT with `is_decoder` still calls its only stack the encoder."""
        spot = place(tensor.name, self.names)
        renamed = spot is not None and self.alone and spot.stack == "encoder"
        spot = replace(spot, stack="decoder") if spot is not None and renamed else spot
        return spot if spot is None or spot.stack == "decoder" else None

    def steps(self, tensor: TensorInfo) -> Iterator[Step]:
        spot = self.place(tensor)
        if spot is None:
            yield from self._outside(tensor)
        elif spot.part in self.layouts:
            if spot.parameter == "weight":
                self.pooled[spot.index, spot.cross, spot.part or ""] = None
            yield self._pool(tensor, spot, spot.part or "")
        elif spot.part in ("q", "o", "norm", "other", "") and _last(spot) in PLAIN:
            yield copy(tensor)
        else:
            raise self._unknown(tensor, "is not known in this architecture")

    def described(self, part: str | None) -> dict[str, Any]:
        """What the class expects of the projection, as the modelling file reads it."""
        order, repeats = _fused(self.source, self.heads) if part == "qkv" else (part, 1)
        return {"parts": order, "heads": self.heads.num_attention_heads, "repeats": repeats}

    def check_layers(self) -> None:
        """Raises CannotConvertError unless every decoder layer has its k and v."""
        for layer in self.source.audit.spec.layers:
            if layer.stack != "decoder":
                continue
            for mixer in layer.mixers:
                cross = mixer.kind == "cross_attention"
                found = {p for i, c, p in self.pooled if (i, c) == (layer.index, cross)}
                if found not in ({"k", "v"}, {"qkv"}, {"kv"}):
                    raise CannotConvertError(
                        f"{self.source.folder}: decoder layer {layer.index} has no k and v"
                        f"{' of its cross-attention' if cross else ''} of a name that is known:"
                        " the checkpoint is incomplete or of another layout"
                    )

    def _pool(self, tensor: TensorInfo, spot: Place, part: str) -> Step:
        if spot.parameter not in PLAIN or tensor.dtype not in FLOATS:
            raise self._unknown(tensor, f"({tensor.dtype}) looks quantised or adapted: not pooled")
        weight = spot.parameter == "weight"
        layout, target = self.layouts[part]
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
                members=self.heads.members,
                source=layout,
                target=target,
            ),
        )

    def _outside(self, tensor: TensorInfo) -> Iterator[Step]:
        """A buffer that old files carry, an encoder's tensor, or one that is not attention."""
        if self._is_buffer(tensor.name):
            self.dropped.append(Dropped(source=tensor, reason="a buffer, not a parameter"))
            return
        known = place(tensor.name, self.names)
        if known is not None and known.part is None and known.stack not in TOWERS:
            raise self._unknown(tensor, "is not known in this architecture")
        number = _NUMBER.search(tensor.name)
        if number is not None and known is None:
            stack, inside = stack_of(tensor.name[: number.start()]), tensor.name[number.end() :]
            tower = stack in TOWERS and not (self.alone and stack == "encoder")
            if not tower and NEAR.search(inside) and not FAR.search(inside):
                raise self._unknown(tensor, "looks like attention but is not known")
        yield copy(tensor)

    def _is_buffer(self, name: str) -> bool:
        number = _NUMBER.search(name)
        inside = name[number.end() + 1 :] if number else ""
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
    """Order and repeats of the class's fused projection."""
    order, repeats = FUSED.get(base_type(source.audit.spec.model_type), ("qkv", 1))
    return order, repeats or heads.num_attention_heads


def _layouts(source: Source, heads: Heads) -> dict[str, tuple[Blocks, Blocks]]:
    """Part -> its layout in the source and in the output, for projections that hold K or V."""
    q, before, after, d = heads.num_attention_heads, heads.before, heads.after, heads.head_dim
    order, repeats = _fused(source, heads)
    ours = source.audit.spec.model_type.startswith(GROUPED)  # stored as [q|k|v] already
    each = q // repeats
    whole = query_key_value(q, d, key_value_heads=before)
    if not ours and repeats > 1:
        whole = interleaved(d, repeats=repeats, query_heads=each, key_value_heads=each, order=order)
    return {
        "k": (_rows("k", before, d), _rows("k", after, d)),
        "v": (_rows("v", before, d), _rows("v", after, d)),
        "kv": (_rows("kv", before, d), _rows("kv", after, d)),
        "qkv": (whole, query_key_value(q, d, key_value_heads=after)),
    }


def _rows(parts: str, heads: int, head_dim: int) -> Blocks:
    return Blocks(blocks=tuple(Block(part=part, heads=heads, rows=head_dim) for part in parts))
