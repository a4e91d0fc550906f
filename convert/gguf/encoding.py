"""Tensors as the bytes that ggml reads: floats, and blocks of 8-bit numbers."""

from collections.abc import Iterator
from typing import Any

import torch

from ..stream.float_casts import cast
from ..stream.pooling import NotFiniteError
from .gguf_file import QUANTISED_BLOCK, GgmlType

_FLOATS = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_LARGEST = 127  # of a quotient
_PIECE = 2**20  # numbers at a time, so that no wide copy of a large tensor is held


def encoded(tensor: torch.Tensor, kind: GgmlType, gain: float = 0.0) -> Iterator[memoryview]:
    """The bytes of `tensor`, to whose numbers `gain` is added, piece by piece. Raises
    NotFiniteError for a number that the type cannot hold."""
    flat = tensor.reshape(-1)
    for start in range(0, max(len(flat), 1), _PIECE):
        piece = flat[start : start + _PIECE]
        if gain:
            piece = piece.float() + gain
        yield _blocks(piece) if kind == "Q8_0" else _raw(cast(piece, _FLOATS[kind]))


def _raw(piece: torch.Tensor) -> memoryview:
    array: Any = piece.contiguous().view(torch.uint8).numpy()
    return memoryview(array)


def _blocks(piece: torch.Tensor) -> memoryview:
    """Q8_0: of each 32 numbers a scale in float16 and 32 quotients, rounded half away from zero, as
    quantize_row_q8_0_ref of ggml-quants.c has them. Raises NotFiniteError."""
    rows = piece.float().view(-1, QUANTISED_BLOCK)
    scale = rows.abs().amax(dim=1, keepdim=True).div_(_LARGEST)
    if not bool(scale.isfinite().all()):
        raise NotFiniteError("holds NaN or infinity, which blocks of 8-bit numbers cannot")
    stored = cast(scale, torch.float16)
    quotients = rows * torch.where(scale == 0, 0.0, 1 / scale)
    sizes = quotients.abs()
    whole = sizes.floor()
    whole += sizes.sub_(whole).mul_(2).floor_()  # adding 1/2 first would round 0.49999997 up
    codes = whole.copysign_(quotients).to(torch.int8)
    return _raw(torch.cat((stored.view(torch.uint8), codes.view(torch.uint8)), dim=1).view(-1))
