"""Numbers as another type of float: large tensors piece by piece."""

from collections.abc import Iterator

import torch

from headcount.sources.safetensors import TensorInfo

from .hashing import Digester
from .pooling import NotFiniteError
from .reader import DTYPES, SourceReader

_PIECE = 2**22  # elements


def cast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`tensor` rounded to `dtype`. Raises NotFiniteError if a finite number becomes infinite; what
    was not finite before is kept."""
    result = tensor.to(dtype)
    if result.isfinite().sum() != tensor.isfinite().sum():
        raise NotFiniteError(f"overflows {str(dtype).removeprefix('torch.')}")
    return result


def cast_pieces(
    reader: SourceReader, info: TensorInfo, dtype: torch.dtype
) -> Iterator[torch.Tensor]:
    """The flat tensor in pieces, each cast. Raises NotFiniteError, HeadcountError."""
    source, digester = DTYPES[info.dtype], Digester()
    length = min(_PIECE * source.itemsize, info.nbytes)
    block = bytearray(length)
    for start in range(0, info.nbytes, length or 1):
        view = memoryview(block)[: info.nbytes - start]
        reader.read_into(info, view, start)
        digester.update(view)
        yield cast(torch.frombuffer(view, dtype=source), dtype)
    reader.saw(info, digester.whole())
