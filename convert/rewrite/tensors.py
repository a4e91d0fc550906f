"""Where the heads of every attention of a decoder lie in the source's tensors, and their values.

`weights_of` reads an attention by its heads, and `tensors_of` is its inverse: torch operations
only, so that gradients pass. Between them nothing of a file's layout is known.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import torch

from headcount.arch.tensors.names import TensorNames
from headcount.arch.tensors.places import PLAIN
from headcount.audit.census import Placed
from headcount.model.mixers import Attention, CrossAttention
from headcount.sources.safetensors import TensorInfo

from ..merge.attention_weights import AttentionWeights
from ..plan.draft import Where
from ..plan.errors import CannotConvertError
from ..plan.layout import Block, Blocks, fused, one_part
from ..plan.source import Source
from ..stream.head_layout import Heads, join_heads, split_heads
from ..stream.reader import DTYPES
from .beside import Beside, beside, moved

Read = Callable[[TensorInfo], torch.Tensor]
_PROJECTIONS = ("q", "k", "v", "o", "kv", "qkv", "gqkv")


@dataclass(frozen=True, kw_only=True, slots=True)
class Projection:
    """A tensor that holds heads of q, k, v or o, or of several. Its part g, if it has one, is a
    gate on what o reads, which goes where its query head goes."""

    tensor: TensorInfo
    layout: Blocks
    is_bias: bool

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(block.part for block in self.layout.blocks)


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionTensors:
    """The tensors of one attention. `output_bias` is that of o, which belongs to no head; `beside`
    follow their heads, and of the modules `unknown` it is not known whether they should. `modules`
    are all that stand beside the projections."""

    where: Where
    mixer: Attention
    dtype: torch.dtype
    projections: tuple[Projection, ...]
    output_bias: TensorInfo | None
    beside: tuple[Beside, ...]
    unknown: tuple[str, ...]
    modules: tuple[str, ...]

    @property
    def tensors(self) -> tuple[TensorInfo, ...]:
        """All that may be written anew, in a fixed order."""
        bias = () if self.output_bias is None else (self.output_bias,)
        held = (projection.tensor for projection in self.projections)
        return (*held, *bias, *chain.from_iterable(item.tensors for item in self.beside))

    def has_bias(self, part: str) -> bool:
        """Whether there is room for a bias of q, k, v or o."""
        if part == "o":
            return self.output_bias is not None
        return any(p.is_bias and part in p.parts for p in self.projections)


def attention_tensors(source: Source) -> dict[Where, AttentionTensors]:
    """Every attention of the decoder that has K/V heads and weights of its own, by layer and kind.

    Reads headers only. Raises CannotConvertError for one whose q, k, v and o are not all known.
    """
    census = source.audit.census
    assert census is not None
    found: dict[Where, AttentionTensors] = {}
    for layer in source.audit.spec.layers:
        for key, mixer in layer.keyed_mixers():
            if layer.stack != "decoder" or not isinstance(mixer, Attention):
                continue
            if mixer.has_key_value and mixer.owns_parameters:
                where = layer.index, isinstance(mixer, CrossAttention)
                found[where] = _of_attention(source, where, mixer, census.layers.get(key, ()))
    return found


def _of_attention(
    source: Source, where: Where, mixer: Attention, placed: tuple[Placed, ...]
) -> AttentionTensors:
    names = source.audit.architecture.names
    plain = [item for item in placed if item.place.parameter in PLAIN]
    held = [item for item in plain if item.place.part in _PROJECTIONS]
    others = [item for item in placed if item not in held and item.place.part != ""]
    bias = next((i.tensor for i in held if i.place.part == "o" and len(i.tensor.shape) == 1), None)
    projections = tuple(
        _projection(source, item, mixer, names) for item in held if item.tensor is not bias
    )
    _check(source, where, mixer, projections)
    known, unknown = beside(others, mixer, names)
    wide = any(item.tensor.dtype == "F64" for item in held)
    return AttentionTensors(
        where=where,
        mixer=mixer,
        dtype=torch.float64 if wide else torch.float32,
        projections=projections,
        output_bias=bias,
        beside=known,
        unknown=unknown,
        modules=tuple(dict.fromkeys(item.place.module for item in others)),
    )


def _projection(source: Source, item: Placed, mixer: Attention, names: TensorNames) -> Projection:
    tensor, is_bias = item.tensor, item.place.parameter == "bias"
    layout = _layout(item, mixer, names.fused_by(source.config))
    axis = layout.axis if len(tensor.shape) > 1 else 0
    fits = len(tensor.shape) == (1 if is_bias else 2) and tensor.shape[axis] == layout.rows
    if tensor.dtype not in DTYPES or not fits:
        raise CannotConvertError(
            f"{source.folder / tensor.file}: tensor {tensor.name!r} ({tensor.dtype},"
            f" {list(tensor.shape)}) does not hold heads as it is known: only --method mean, first,"
            " medoid and random can do with that"
        )
    return Projection(tensor=tensor, layout=layout, is_bias=is_bias)


def _layout(item: Placed, mixer: Attention, spelling: str) -> Blocks:
    part = item.place.part or ""
    axis = -1 if item.transposed and item.place.parameter == "weight" else 0
    heads = dict.fromkeys("qog", mixer.num_attention_heads)
    rows = {"q": mixer.head_dim, "k": mixer.head_dim}
    if part == "qkv":
        return fused(spelling, mixer, axis=axis)
    if part == "o":
        return one_part("o", heads["o"], mixer.v_head_dim, axis=0 if item.transposed else -1)
    if part == "q" and mixer.query_gate:  # each query head, then its gate
        blocks = tuple(Block(part=p, heads=1, rows=mixer.head_dim) for p in "qg")
        return Blocks(blocks=blocks, axis=axis, repeats=heads["q"])
    return Blocks(
        blocks=tuple(
            Block(
                part=p,
                heads=heads.get(p, mixer.num_key_value_heads),
                rows=rows.get(p, mixer.v_head_dim),
            )
            for p in part
        ),
        axis=axis,
    )


def _check(
    source: Source, where: Where, mixer: Attention, projections: tuple[Projection, ...]
) -> None:
    """Raises CannotConvertError unless every part stands once."""
    for part in "qkvo" if mixer.has_value else "qko":
        holders = [p.tensor.name for p in projections if part in p.parts and not p.is_bias]
        if len(holders) != 1:
            what = f"is held by {' and '.join(holders)}" if holders else "is not known"
            raise CannotConvertError(
                f"{source.folder}: {part} of layer {where[0]}"
                f"{' (cross-attention)' if where[1] else ''} {what}: only --method mean, first,"
                " medoid and random can do with that"
            )


def weights_of(tensors: AttentionTensors, read: Read) -> AttentionWeights:
    """The attention by its heads, in `tensors.dtype`. Where the values are the keys, v is k."""
    weights: Heads = {}
    biases: Heads = {}
    for projection in tensors.projections:
        values = read(projection.tensor).to(tensors.dtype)
        into = biases if projection.is_bias else weights
        into |= split_heads(values, projection.layout)
    if not tensors.mixer.has_value:
        weights["v"] = weights["k"]
    bias = tensors.output_bias
    return AttentionWeights(
        q=weights["q"],
        k=weights["k"],
        v=weights["v"],
        o=weights["o"].transpose(1, 2),
        q_bias=biases.get("q"),
        k_bias=biases.get("k"),
        v_bias=biases.get("v"),
        o_bias=None if bias is None else read(bias).to(tensors.dtype),
    )


def key_value_heads(tensors: AttentionTensors, read: Read) -> Iterator[tuple[str, torch.Tensor]]:
    """`k` and `v` with [heads, rows, width], of the weights as they are stored."""
    for projection in tensors.projections:
        if not projection.is_bias and {"k", "v"} & set(projection.parts):
            held = split_heads(read(projection.tensor), projection.layout)
            yield from ((part, held[part]) for part in projection.parts if part in ("k", "v"))


def tensors_of(
    tensors: AttentionTensors,
    weights: AttentionWeights,
    read: Read,
    order: Sequence[int] = (),
    groups: Sequence[int] = (),
) -> dict[str, torch.Tensor]:
    """The tensors of the source, by name, that hold `weights`; the inverse of `weights_of`.

    `order` are the K/V heads of the source in their new places, none: as they were; `groups` are
    runs of K/V heads that are equal. What stands beside the projections follows both: it is read.
    ValueError: a bias that there is no tensor for.
    """
    for part in "qkvo":
        if getattr(weights, f"{part}_bias") is not None and not tensors.has_bias(part):
            raise ValueError(f"there is no bias of {part} to hold what it should be")
    group_size, count = weights.group_size, weights.k.shape[0]
    heads = tuple(order) or tuple(range(count))
    query = [head * group_size + i for head in heads for i in range(group_size)]
    made: dict[str, torch.Tensor] = {}
    for projection in tensors.projections:
        held = _heads(projection, weights)
        if "g" in projection.parts:
            gates = split_heads(read(projection.tensor), projection.layout)["g"]
            held["g"] = gates[query].to(tensors.dtype)
        made[projection.tensor.name] = join_heads(held, projection.layout).to(tensors.dtype)
    if tensors.output_bias is not None:
        assert weights.o_bias is not None
        made[tensors.output_bias.name] = weights.o_bias.to(tensors.dtype)
    places = {"q": query, "k": heads, "v": heads}
    for item in tensors.beside:
        if query != sorted(query) or (item.tied and groups):
            values = [read(info).to(tensors.dtype) for info in item.tensors]
            made |= moved(item, values, places, groups or (1,) * count)
    return made


def _heads(projection: Projection, weights: AttentionWeights) -> Heads:
    """The parts of one tensor, as they lie in it."""
    if projection.is_bias:
        found = {"q": weights.q_bias, "k": weights.k_bias, "v": weights.v_bias}
    else:
        output = weights.o.transpose(1, 2)
        found = {"q": weights.q, "k": weights.k, "v": weights.v, "o": output}
    return {p: heads for p in projection.parts if (heads := found.get(p)) is not None}
