"""A GGUF file as a plan says it: key-values, and tensors with the steps that make them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal

from headcount.arch.tensors.blocks import Blocks
from headcount.sources.ggml_types import GGML_TYPES

# What every file of ours is called, in its folder.
NAME = "model.gguf"
ALIGNMENT = 32  # bytes; general.alignment of a file that does not say it
GgmlType = Literal["F32", "F16", "BF16", "Q8_0"]
# Types of values: a scalar of the format, or "[...]" for an array of them.
Kind = Literal["u32", "f32", "bool", "str", "[i32]", "[u32]", "[f32]", "[bool]", "[str]"]
_SIZES = {name: (block, nbytes) for name, block, nbytes in GGML_TYPES.values()}
QUANTISED_BLOCK = _SIZES["Q8_0"][0]  # elements that share a scale


@dataclass(frozen=True, slots=True)
class KeyValue:
    """One key of the file, its type and its value."""

    key: str
    kind: Kind
    value: Any


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadOrder:
    """Heads that lie otherwise in the file: `source` says how in the tensor that the steps make. In
    the file they are [q|k|v] of the parts that there are, and q and k with the rows of each head
    `in_pairs`: i and i + half of the rotated ones, `rotated` in all, become neighbours."""

    source: Blocks
    rotated: int = 0

    @property
    def parts(self) -> str:
        """In the order of the file."""
        return "".join(part for part in "qkv" if self.source.heads(part))


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadHalf:
    """One half of what a latent becomes in each of `heads`: of `keys` and `values` rows the first
    ones, with rows and columns of each head swapped ("k"), or the others as they are ("v")."""

    half: Literal["k", "v"]
    heads: int
    keys: int
    values: int

    def shape(self, rank: int) -> tuple[int, ...]:
        """Of a latent of `rank` elements."""
        if self.half == "k":
            return (self.heads, rank, self.keys)
        return (self.heads, self.values, rank)


@dataclass(frozen=True, kw_only=True, slots=True)
class GgufTensor:
    """One tensor of the file. `shape` is torch's, the fastest axis last; `type` is ggml's.

    It is the tensor that the step called by the one of `steps` makes, or those of all of them
    stacked along a new first axis; of none, `values`. `transposed`: rows and columns are swapped
    first. `heads`: then heads lie otherwise. `half`: it is this part of each head. `gain` is added
    to every number.
    """

    name: str
    type: GgmlType
    shape: tuple[int, ...]
    steps: tuple[str, ...] = ()
    values: tuple[float, ...] = ()
    transposed: bool = False
    heads: HeadOrder | None = None
    half: HeadHalf | None = None
    gain: float = 0.0

    @property
    def verb(self) -> str:
        """What is done to the numbers beside their type."""
        if not self.steps:
            return "make"
        if self.heads is not None:
            return "reorder"
        if self.half is not None:
            return "split"
        if len(self.steps) > 1:
            return "stack"
        if self.transposed:
            return "transpose"
        return "shift" if self.gain else "copy"

    @property
    def nbytes(self) -> int:
        """Bytes in the file, without those that align the next one."""
        block, nbytes = _SIZES[self.type]
        return prod(self.shape) // block * nbytes


@dataclass(frozen=True, kw_only=True, slots=True)
class GgufFile:
    """The whole file. `dropped` are steps whose tensors are not in it, and why; `notes` is what a
    reader should know of it."""

    architecture: str
    metadata: tuple[KeyValue, ...]
    tensors: tuple[GgufTensor, ...]
    dropped: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors as they lie in the file."""
        return sum(tensor.nbytes + padding(tensor.nbytes) for tensor in self.tensors)

    @property
    def vocabulary(self) -> str:
        """What llama.cpp calls the kind of its tokenizer; `none`: it has none."""
        found = (one.value for one in self.metadata if one.key == "tokenizer.ggml.model")
        return str(next(found, "none"))

    def offsets(self) -> Iterator[int]:
        """Where each tensor begins, from the first one on."""
        position = 0
        for tensor in self.tensors:
            yield position
            position += tensor.nbytes + padding(tensor.nbytes)


def padding(nbytes: int) -> int:
    """Bytes that are missing to the next multiple of the alignment."""
    return -nbytes % ALIGNMENT
