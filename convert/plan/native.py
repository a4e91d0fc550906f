"""Steps for a model that stays in its class, which holds fewer K/V heads.

K/V heads are merged wherever the row of the family table says that they lie; towers, recurrent
layers and what belongs to query heads or to no head go along as they are. What is near attention
and not known is refused.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from headcount.arch.tensors.names import BUFFERS, TensorNames
from headcount.arch.tensors.places import PLAIN, Place
from headcount.sources.safetensors import TensorInfo

from .draft import Draft, Heads, HeadsByLayer, Where
from .errors import CannotConvertError
from .layout import Blocks, one_part
from .native_heads import attentions
from .native_layouts import layouts, merged
from .padding import padded
from .source import Source
from .standing import Standing
from .steps import Pool, Role, Step, copy

FLOATS = ("F64", "F32", "F16", "BF16")
KEY_NORMS = ("k_norm", "norm_k", "k_layernorm", "key_layernorm")
QUERY_NORMS = ("q_norm", "norm_q", "q_layernorm", "query_layernorm", "attn_sub_norm")
# A word of a tensor's path in its layer that makes it look like attention.
NEAR = re.compile(r"attn|attention|[qkv]_proj|qkv|query|key|value")
FAR = re.compile(r"norm|mlp|expert|(^|[._])ln_")  # unless it is one of these

NORM_NOTE = (
    "the k norm runs over all K/V heads of a token: with fewer heads its mean square changes, so"
    " the norm's weight is pooled but the result is only exact where pooled heads agree"
)


def steps(source: Source, heads: HeadsByLayer) -> Draft:
    """One step per tensor of the output. Raises CannotConvertError naming what is not known."""
    builder = _Builder(source, heads)
    by_file = {
        header.path.name: tuple(s for t in header.tensors for s in builder.steps(t))
        for header in source.checkpoint.files
    }
    return Draft(steps=by_file, layers=builder.check_layers(), notes=tuple(builder.notes))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Spot:
    """A tensor, where it stands, and the heads of its attention."""

    tensor: TensorInfo
    place: Place
    heads: Heads

    @property
    def role(self) -> Role:
        """What a tensor with K or V heads is: only weights say how far heads moved."""
        if self.place.parameter != "weight":
            return "bias"
        return "weight" if len(self.tensor.shape) == 2 else "norm"


class _Builder:
    """Gathers what can only be said once all tensors were seen: complete layers, notes."""

    def __init__(self, source: Source, heads: HeadsByLayer) -> None:
        self.source = source
        self.heads = heads
        self.names: TensorNames = source.audit.architecture.names
        self.attending = {*(index for index, _ in heads.layers), *heads.readers}
        self.indices = {layer.index for layer in source.audit.spec.layers}
        self.seen: dict[Where, set[str]] = {}
        self.stood: dict[tuple[Where, str, str], str] = {}
        self.norm_lists: dict[tuple[int, str], dict[int, TensorInfo]] = _norm_lists(source)
        self.notes: dict[str, None] = {}

    def steps(self, tensor: TensorInfo) -> Iterator[Step]:
        standing = self.source.standings.get(tensor.name)
        if standing is None or standing.is_tower:
            yield copy(tensor)
            return
        found = standing.place
        if found is None:
            self._refuse_lookalike(tensor, standing)
            yield copy(tensor)
        elif not standing.is_decoder:
            raise self._unknown(
                tensor, f"belongs to {standing.owner}, which convert does not handle"
            )
        elif found.index in self.indices - self.attending:
            yield copy(tensor)  # a layer without attention, such as a recurrent one
        else:
            heads = self.heads.of(found.index, cross=found.cross)
            if heads is None or found.part is None:
                raise self._unknown(tensor, "is not known in this architecture")
            yield from self._of_attention(_Spot(tensor=tensor, place=found, heads=heads))

    def _of_attention(self, spot: _Spot) -> Iterator[Step]:
        part, key = spot.place.part, (_where(spot), spot.place.module, spot.place.parameter)
        other = self.stood.setdefault(key, spot.tensor.name)
        if other != spot.tensor.name:
            raise self._unknown(spot.tensor, f"stands in the same place of a layer as {other!r}")
        if part in ("k", "v", "qkv"):
            yield self._projection(spot, part)
        elif spot.place.module in self.names.key_value:
            yield self._beside(spot)
        elif part == "norm" and _word_of(spot.place, KEY_NORMS):
            yield from self._key_norm(spot)
        else:
            self._check_kept(spot)
            yield self._kept(spot)

    def check_layers(self) -> tuple[int, ...]:
        """The numbers of the pooled layers: those of the config, and any that are stored beyond
        them (for multi-token prediction). Raises CannotConvertError if one lacks k or v."""
        mixers = attentions(self.source.audit.spec)
        for where in sorted(
            {*self.heads.layers, *self.seen} - {(i, False) for i in self.heads.readers}
        ):
            mixer = mixers.get(where)
            needed = "k" if mixer is not None and not mixer.has_value else "kv"
            for part in needed:
                if part not in self.seen.get(where, ()):
                    raise CannotConvertError(
                        f"{self.source.folder}: layer {where[0]} has no {part} projection of a name"
                        " that is known: the checkpoint is incomplete or of another layout"
                    )
        return tuple(sorted({i for i, cross in self.seen if self._is_changed(i, cross=cross)}))

    def _is_changed(self, index: int, *, cross: bool) -> bool:
        heads = self.heads.of(index, cross=cross)
        return heads is not None and heads.is_changed

    def _projection(self, spot: _Spot, part: str) -> Step:
        """k, v or all three in one."""
        if spot.place.parameter not in PLAIN:
            raise self._unknown(spot.tensor, "looks quantised or adapted: not pooled")
        source, target = layouts(spot.heads, part, self.names.fused)
        if spot.role == "bias" and len(spot.tensor.shape) != 1:
            raise self._unknown(spot.tensor, f"has shape {list(spot.tensor.shape)}: no bias")
        if not spot.tensor.shape or spot.tensor.shape[0] != source.rows:
            raise self._unknown(
                spot.tensor,
                f"has shape {list(spot.tensor.shape)}; {source.rows} rows were expected",
            )
        if spot.role == "weight":
            self.seen.setdefault(_where(spot), set()).update(part)
        return self._pool(spot, (spot.tensor,), spot.role, source, target)

    def _beside(self, spot: _Spot) -> Step:
        """What has numbers of K or V heads beside their projection, such as a convolution of k."""
        part, axis = self.names.key_value[spot.place.module]
        rows, rest = divmod(spot.tensor.shape[axis], spot.heads.before)
        if rest or not rows or spot.place.parameter not in PLAIN:
            raise self._unknown(spot.tensor, f"has shape {list(spot.tensor.shape)}: no K/V heads")
        layout = replace(one_part(part, spot.heads.before, rows), axis=axis)
        target = replace(merged(layout, spot.heads), axis=axis)
        return self._pool(spot, (spot.tensor,), "norm", layout, target)

    def _key_norm(self, spot: _Spot) -> Iterator[Step]:
        """By its shape: shared by all heads, over all heads, a row per head, or a list of norms."""
        tensor, before, d = spot.tensor, spot.heads.before, spot.heads.head_dim
        if spot.place.parameter not in PLAIN:
            yield from self._norm_list(spot)
        elif tensor.shape == (d,):
            yield copy(tensor)
        elif tensor.shape == (before * d,) and not spot.heads.is_padded:
            if spot.heads.is_changed:
                self.notes[NORM_NOTE] = None
            yield self._norm(spot, one_part("k", before, d))
        elif tensor.shape == (before * d,):
            raise self._unknown(
                tensor, "is a norm over all heads, which padding would change: choose a divisor"
            )
        elif tensor.shape == (before, d):
            yield self._norm(spot, one_part("k", before, 1))
        else:
            raise self._unknown(tensor, f"has shape {list(tensor.shape)}, which fits no k norm")

    def _norm(self, spot: _Spot, layout: Blocks) -> Step:
        return self._pool(spot, (spot.tensor,), "norm", layout, merged(layout, spot.heads))

    def _norm_list(self, spot: _Spot) -> Iterator[Step]:
        """`norms.{h}.weight`: the group's first tensor yields the new head, the others nothing."""
        number, _, parameter = spot.place.parameter.partition(".")
        members, d = spot.heads.members, spot.heads.head_dim
        siblings = self.norm_lists[spot.place.index, parameter]
        complete = set(siblings) == set(range(spot.heads.before))
        if not complete or spot.tensor.shape != (d,) or spot.heads.is_padded:
            raise self._unknown(spot.tensor, f"should be one of {spot.heads.before} norms of {d}")
        if int(number) % members:
            return
        head = int(number) // members
        group = tuple(siblings[int(number) + i] for i in range(members))
        layout = one_part("k", members, d)
        step = self._pool(spot, group, "norm", layout, layout.pooled(members), first_head=head)
        name = spot.tensor.name.removesuffix(spot.place.parameter) + f"{head}.{parameter}"
        yield replace(step, name=name)

    def _pool(
        self,
        spot: _Spot,
        tensors: tuple[TensorInfo, ...],
        role: Role,
        source: Blocks,
        target: Blocks,
        first_head: int = 0,
    ) -> Step:
        heads = spot.heads
        if any(tensor.dtype not in FLOATS for tensor in tensors):
            raise self._unknown(tensors[0], f"({tensors[0].dtype}) looks quantised: not pooled")
        if not heads.is_changed:
            return copy(spot.tensor)
        shape = list(tensors[0].shape)
        shape[target.axis] = target.rows
        return Step(
            name=tensors[0].name,
            dtype=tensors[0].dtype,
            shape=tuple(shape),
            sources=tensors,
            action=Pool(
                layer=spot.place.index,
                role=role,
                members=heads.members,
                source=source,
                target=target,
                first_head=first_head,
                runs=heads.runs if heads.is_padded else (),
                slots=heads.query_slots if heads.is_padded and source.heads("q") else (),
                cross=spot.place.cross,
            ),
        )

    def _check_kept(self, spot: _Spot) -> None:
        """Only what is named in the family's row may go along."""
        part, parameter = spot.place.part, spot.place.parameter.rpartition(".")[2]
        named = self.names.cross if spot.place.cross else self.names.modules
        known_norm = part != "norm" or _word_of(spot.place, QUERY_NORMS)
        if spot.place.module not in named or parameter not in PLAIN or not known_norm:
            raise self._unknown(spot.tensor, "is not known well enough to be kept")

    def _kept(self, spot: _Spot) -> Step:
        """What belongs to query heads or to no head: as it is, or with padding between heads."""
        if not spot.heads.is_padded:
            return copy(spot.tensor)
        step = padded(spot.tensor, spot.place, spot.heads)
        if step is None:
            raise self._unknown(
                spot.tensor,
                f"cannot be padded to the {spot.heads.padded_heads} query heads that"
                f" {spot.heads.after} K/V heads need: choose a divisor",
            )
        return step

    def _refuse_lookalike(self, tensor: TensorInfo, standing: Standing) -> None:
        """A tensor of a layer, outside the known modules, whose name sounds like attention."""
        inside, index = standing.at.inside, standing.at.number
        recurrent = standing.is_decoder and index in self.indices - self.attending
        if recurrent or FAR.search(inside):
            return
        if NEAR.search(inside) and not any(inside.endswith("." + b) for b in BUFFERS - {"bias"}):
            raise self._unknown(tensor, "looks like attention but is not known")

    def _unknown(self, tensor: TensorInfo, what: str) -> CannotConvertError:
        return CannotConvertError(
            f"{self.source.folder / tensor.file}: tensor {tensor.name!r} {what}"
        )


def _where(spot: _Spot) -> Where:
    return spot.place.index, spot.place.cross


def _word_of(spot: Place, words: tuple[str, ...]) -> bool:
    return any(word in words for word in spot.module.split("."))


def _norm_lists(source: Source) -> dict[tuple[int, str], dict[int, TensorInfo]]:
    """(layer, parameter) -> number -> tensor, for k norms stored as one tensor per head."""
    tensors = source.checkpoint.tensors
    found: dict[tuple[int, str], dict[int, TensorInfo]] = {}
    for name, standing in source.standings.items():
        spot = standing.place if standing.is_decoder else None
        if spot is None or spot.part != "norm" or not _word_of(spot, KEY_NORMS):
            continue
        number, _, parameter = spot.parameter.partition(".")
        if number.isdigit():
            found.setdefault((spot.index, parameter), {})[int(number)] = tensors[name]
    return found
