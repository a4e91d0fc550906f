"""Numbers as another type of float: large tensors piece by piece."""

from collections.abc import Iterator
from typing import NamedTuple

import torch

from headcount.sources.safetensors import TensorInfo

from .hashing import Digester
from .pooling import NotFiniteError
from .reader import DTYPES, SourceReader

_PIECE = 2**22  # elements


class Lost(NamedTuple):
    """Numbers that rounding to a type of fewer exponents does not merely round: how many became 0,
    and how many are so small in it that they keep fewer digits."""

    zeros: int = 0
    small: int = 0

    def plus(self, other: "Lost") -> "Lost":
        return Lost(self.zeros + other.zeros, self.small + other.small)


def cast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`tensor` rounded to `dtype`. Raises NotFiniteError if a finite number becomes infinite; what
    was not finite before is kept."""
    result = tensor.to(dtype)
    infinite = int(tensor.isfinite().sum() - result.isfinite().sum())
    if infinite:
        largest = torch.finfo(dtype).max
        raise NotFiniteError(
            f"overflows {str(dtype).removeprefix('torch.')}: {infinite:,} of its numbers, or more,"
            f" are beyond {largest:.5g}"
        )
    return result


def lost(before: torch.Tensor, after: torch.Tensor) -> Lost:
    """What `cast` made of `before` that is more than rounding."""
    kept = int(after.count_nonzero())
    zeros = int(before.count_nonzero()) - kept
    is_small = after.abs() < torch.finfo(after.dtype).tiny
    if int(is_small.sum()) == after.numel() - kept:  # the zeros alone
        return Lost(zeros, 0)
    moved = (after != 0) & is_small & (after.to(before.dtype) != before)
    return Lost(zeros, int(moved.sum()))


def cast_pieces(
    reader: SourceReader, info: TensorInfo, dtype: torch.dtype
) -> Iterator[tuple[torch.Tensor, Lost]]:
    """The flat tensor in pieces, each cast, with what was lost of it. Raises NotFiniteError,
    HeadcountError."""
    source, digester = DTYPES[info.dtype], Digester()
    length = min(_PIECE * source.itemsize, info.nbytes)
    block = bytearray(length)
    for start in range(0, info.nbytes, length or 1):
        view = memoryview(block)[: info.nbytes - start]
        reader.read_into(info, view, start)
        digester.update(view)
        before = torch.frombuffer(view, dtype=source)
        after = cast(before, dtype)
        yield after, lost(before, after)
    reader.saw(info, digester.whole())
