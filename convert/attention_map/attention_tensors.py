"""The tensors of one attention, and how its heads lie in each of them."""

from dataclasses import dataclass
from itertools import chain

from headcount.arch.tensors.blocks import Blocks
from headcount.arch.tensors.places import Place
from headcount.model.mixers import Attention
from headcount.sources.safetensors import TensorInfo

from .layouts import PROJECTIONS

# Which attention of which layer: its number, and whether it is the cross-attention.
Where = tuple[int, bool]


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadTensors:
    """A projection, its bias, a norm, or what else stands beside it: one tensor, or a list of norms
    with one for each head, joined along their first axis. `place` is that of the first. `layout` is
    without blocks where there are no numbers of single heads; None where that is not known."""

    tensors: tuple[TensorInfo, ...]
    place: Place
    layout: Blocks | None

    @property
    def tensor(self) -> TensorInfo:
        """The only one, or the first of a list."""
        return self.tensors[0]

    @property
    def module(self) -> str:
        return self.place.module

    @property
    def where(self) -> Where:
        return self.place.index, self.place.cross

    @property
    def is_projection(self) -> bool:
        """Whether it computes q, k, v or o, rather than stands beside them."""
        return self.place.part in PROJECTIONS

    @property
    def is_bias(self) -> bool:
        return self.place.parameter == "bias"

    @property
    def parts(self) -> tuple[str, ...]:
        """What its heads are of, in their order: q, k, v, o, or g for a gate on what o reads, which
        goes where its query head goes."""
        return () if self.layout is None else tuple(block.part for block in self.layout.blocks)

    @property
    def blocks(self) -> Blocks:
        """The layout, where it is known."""
        assert self.layout is not None
        return self.layout

    @property
    def has_key_value(self) -> bool:
        """Whether it has numbers of single K or V heads."""
        return not {"k", "v"}.isdisjoint(self.parts)

    @property
    def has_query_key_value(self) -> bool:
        """Whether it computes q, k or v."""
        return self.is_projection and not {"q", "k", "v"}.isdisjoint(self.parts)

    @property
    def length(self) -> int:
        """Of the tensor along the axis of its heads."""
        shape = self.tensor.shape
        return shape[self.blocks.axis if len(shape) > 1 else 0] if shape else 0

    @property
    def fits(self) -> bool:
        """Whether a projection has the shape that its heads make."""
        right = len(self.tensor.shape) == (1 if self.is_bias else 2)
        return right and self.length == self.blocks.rows


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionTensors:
    """All tensors of one attention, in the order of their files."""

    where: Where
    mixer: Attention
    held: tuple[HeadTensors, ...]

    @property
    def projections(self) -> tuple[HeadTensors, ...]:
        """Those of q, k, v and o, with their biases but that of o, which belongs to no head."""
        return tuple(one for one in self.held if one.is_projection and one.parts)

    @property
    def output_bias(self) -> TensorInfo | None:
        held = (one for one in self.held if one.is_projection and one.place.part == "o")
        return next((one.tensor for one in held if one.layout and not one.parts), None)

    @property
    def others(self) -> tuple[HeadTensors, ...]:
        """What stands beside the projections and is counted as attention."""
        return tuple(
            one
            for one in self.held
            if one.place.part != "" and not (one.is_projection and one.layout is not None)
        )

    @property
    def beside(self) -> tuple[HeadTensors, ...]:
        """Those of them that have numbers of single heads, and follow these."""
        return tuple(one for one in self.others if one.parts)

    @property
    def tensors(self) -> tuple[TensorInfo, ...]:
        """All that may be written anew, in a fixed order."""
        bias = () if self.output_bias is None else (self.output_bias,)
        held = (one.tensor for one in self.projections)
        return (*held, *bias, *chain.from_iterable(one.tensors for one in self.beside))

    @property
    def is_double(self) -> bool:
        """Whether a projection is stored in float64."""
        return any(one.tensor.dtype == "F64" for one in self.held if one.is_projection)

    @property
    def computed_itemsize(self) -> int:
        """Bytes of an element where the attention is computed: in float64 if it is stored so."""
        return 8 if self.is_double else 4

    def has_bias(self, part: str) -> bool:
        """Whether there is room for a bias of q, k, v or o."""
        if part == "o":
            return self.output_bias is not None
        return any(one.is_bias and part in one.parts for one in self.projections)
