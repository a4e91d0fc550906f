"""The steps of a plan: every tensor of the output, and where it comes from."""

from dataclasses import dataclass
from math import prod
from typing import ClassVar, Literal

from headcount.arch.tensors.blocks import Blocks
from headcount.model.dtypes import SAFETENSORS_BITS, bytes_of
from headcount.sources.safetensors import TensorInfo

Role = Literal["weight", "bias", "norm"]
# What of the norm in front of a projection goes into it. The sources of a step that folds are, for
# the gain, the weight and the norm's weight; for the shift, the projection's weight, the norm's
# bias and, if there is one, the projection's bias.
Folded = Literal["", "gain", "shift"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Copy:
    """The source's bytes, never decoded."""

    verb: ClassVar[str] = "copy"


@dataclass(frozen=True, kw_only=True, slots=True)
class Transpose:
    """The source's values with rows and columns swapped."""

    verb: ClassVar[str] = "transpose"


@dataclass(frozen=True, kw_only=True, slots=True)
class Cast:
    """The source's values, rounded to the step's dtype."""

    verb: ClassVar[str] = "cast"


@dataclass(frozen=True, kw_only=True, slots=True)
class Make:
    """A tensor that the target has and the source has not: `value` everywhere."""

    verb: ClassVar[str] = "make"

    value: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Skip:
    """The source's values without its first `rows` rows."""

    verb: ClassVar[str] = "skip"

    rows: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """The source's values times `factor`."""

    verb: ClassVar[str] = "scale"

    factor: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Fold:
    """A projection, or its bias, that takes up the affine part of the norm in front of it:
    W * gamma along its input, b + W @ beta."""

    verb: ClassVar[str] = "fold"

    folded: Folded


@dataclass(frozen=True, kw_only=True, slots=True)
class Take:
    """Query heads of a projection: a part of a fused one, and each head's rows in `order`."""

    verb: ClassVar[str] = "take"

    source: Blocks
    order: tuple[int, ...] = ()
    folded: Folded = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pool:
    """Each run of `members` K/V heads becomes one; query heads of the tensor are kept.

    Several source tensors are read as one, joined along their first axis, unless a norm is
    `folded`. `target` may leave out parts of the source. `first_head` is the layer's K/V head that
    the first one made here is (not 0 where each head has its own tensor). `order`: the rows of each
    q and k head in another order, for another layout of the rotary dimensions. `runs` are the
    members of each new head where they are not alike, and `slots` the places of the tensor's query
    heads then, see `Pad`. Of the tensor's K/V heads only `kept` are pooled, if some are pruned.
    `cross`: it is the layer's cross-attention.
    """

    verb: ClassVar[str] = "pool"

    layer: int
    role: Role
    members: int
    source: Blocks
    target: Blocks
    first_head: int = 0
    order: tuple[int, ...] = ()
    folded: Folded = ""
    runs: tuple[int, ...] = ()
    slots: tuple[int | None, ...] = ()
    kept: tuple[int, ...] = ()
    cross: bool = False

    @property
    def pooled_parts(self) -> tuple[str, ...]:
        """k, v or both."""
        return tuple(block.part for block in self.target.blocks if block.part in "kv")

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many heads become each of those made here."""
        return self.runs or (self.members,) * self.target.heads(self.pooled_parts[0])


@dataclass(frozen=True, kw_only=True, slots=True)
class Pad:
    """Query heads at new places: head `slots[i]` of the source is the i-th, None is all zeros.
    Those that stand nowhere are pruned.

    `source` says how heads lie along its axis: rows of q, columns of o, numbers of a sink.
    """

    source: Blocks
    slots: tuple[int | None, ...]

    @property
    def verb(self) -> str:
        lost = set(range(self.source.heads(self.source.blocks[0].part))) - set(self.slots)
        return "prune" if lost else "pad"


@dataclass(frozen=True, kw_only=True, slots=True)
class Factor:
    """A part of the low-rank map that takes the place of the projections of k and v: the way down
    to the latent, or one back up. It is made while the layer is rewritten, under the step's name;
    `layer` is that layer."""

    verb: ClassVar[str] = "factor"

    layer: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """The rows of one part of a fused projection, or of its bias, one head after the other."""

    verb: ClassVar[str] = "part"

    source: Blocks
    part: str


Action = Copy | Transpose | Cast | Make | Skip | Scale | Fold | Take | Pool | Pad | Factor | Part


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One tensor of the output: its header entry, and how its bytes are made from `sources`."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    sources: tuple[TensorInfo, ...]
    action: Action

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return bytes_of(self.elements, SAFETENSORS_BITS[self.dtype])


@dataclass(frozen=True, kw_only=True, slots=True)
class Dropped:
    """A tensor of the source that the output does not have."""

    source: TensorInfo
    reason: str


def copy(tensor: TensorInfo, name: str | None = None) -> Step:
    """The tensor as it is, under its own name unless it gets another."""
    return Step(
        name=name or tensor.name,
        dtype=tensor.dtype,
        shape=tensor.shape,
        sources=(tensor,),
        action=Copy(),
    )


def transpose(tensor: TensorInfo, name: str | None = None) -> Step:
    """The matrix with rows and columns swapped, under its own name unless it gets another."""
    return Step(
        name=name or tensor.name,
        dtype=tensor.dtype,
        shape=tensor.shape[::-1],
        sources=(tensor,),
        action=Transpose(),
    )


def computed(
    name: str, sources: tuple[TensorInfo, ...], shape: tuple[int, ...], action: Action
) -> Step:
    """A tensor of the sources' dtype that `action` makes of them."""
    return Step(name=name, dtype=sources[0].dtype, shape=shape, sources=sources, action=action)


def make(name: str, dtype: str, shape: tuple[int, ...], value: float) -> Step:
    """A tensor of one value, made of nothing."""
    return Step(name=name, dtype=dtype, shape=shape, sources=(), action=Make(value=value))
