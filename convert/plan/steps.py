"""The steps of a plan: every tensor of the output, and where it comes from."""

from dataclasses import dataclass
from math import prod
from typing import ClassVar, Literal

from headcount.audit.dtypes import SAFETENSORS_BITS, bytes_of
from headcount.audit.source.safetensors import TensorInfo

from .layout import Blocks

Role = Literal["weight", "bias", "norm"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Copy:
    """The source's bytes, never decoded."""

    verb: ClassVar[str] = "copy"


@dataclass(frozen=True, kw_only=True, slots=True)
class Transpose:
    """The source's values with rows and columns swapped."""

    verb: ClassVar[str] = "transpose"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pool:
    """Each run of `members` K/V heads becomes one; other parts of the tensor are kept.

    Several source tensors are read as one, joined along their first axis. `first_head` is the
    layer's K/V head that the first one made here is (not 0 where each head has its own tensor).
    `runs` are the members of each new head where they are not alike, and `slots` the places of the
    tensor's query heads then, see `Pad`. `cross`: it is the layer's cross-attention.
    """

    verb: ClassVar[str] = "pool"

    layer: int
    role: Role
    members: int
    source: Blocks
    target: Blocks
    first_head: int = 0
    runs: tuple[int, ...] = ()
    slots: tuple[int | None, ...] = ()
    cross: bool = False

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many heads become each of those made here."""
        parts = {block.part for block in self.target.blocks} - {"q"}
        return self.runs or (self.members,) * self.target.heads(min(parts))


@dataclass(frozen=True, kw_only=True, slots=True)
class Pad:
    """Query heads at new places: head `slots[i]` of the source is the i-th, None is all zeros.

    `source` says how heads lie along its axis: rows of q, columns of o, numbers of a sink.
    """

    verb: ClassVar[str] = "pad"

    source: Blocks
    slots: tuple[int | None, ...]


Action = Copy | Transpose | Pool | Pad


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


def copy(tensor: TensorInfo) -> Step:
    """The tensor as it is."""
    return Step(
        name=tensor.name,
        dtype=tensor.dtype,
        shape=tensor.shape,
        sources=(tensor,),
        action=Copy(),
    )


def transpose(tensor: TensorInfo) -> Step:
    """The matrix with rows and columns swapped, under its own name."""
    return Step(
        name=tensor.name,
        dtype=tensor.dtype,
        shape=tensor.shape[::-1],
        sources=(tensor,),
        action=Transpose(),
    )
