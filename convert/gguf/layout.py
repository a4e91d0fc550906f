"""A tensor of a checkpoint as llama.cpp's graphs want it: heads in their order, rows in theirs."""

from collections.abc import Sequence

import torch

from ..stream.head_layout import split_heads
from .gguf_file import GgufTensor, HeadHalf, HeadOrder


def put_in_order(made: Sequence[torch.Tensor], tensor: GgufTensor) -> torch.Tensor:
    """What the steps of `tensor` have `made`, as it lies in the file but for its type."""
    whole = made[0] if len(made) == 1 else torch.stack(tuple(made))
    if tensor.transposed:
        whole = whole.T
    if tensor.half is not None:
        return _half(whole, tensor.half)
    return whole if tensor.heads is None else _ordered(whole, tensor.heads)


def _half(whole: torch.Tensor, half: HeadHalf) -> torch.Tensor:
    """[heads, rank, keys], by which llama.cpp multiplies queries into the latent, or
    [heads, values, rank], which makes values of it."""
    heads = whole.view(half.heads, half.keys + half.values, -1)
    return heads[:, : half.keys].transpose(1, 2) if half.half == "k" else heads[:, half.keys :]


def _ordered(whole: torch.Tensor, order: HeadOrder) -> torch.Tensor:
    """[q|k|v] of the parts that there are, q and k in pairs."""
    heads = split_heads(whole, order.source)
    parts = [
        _paired(heads[part], order.rotated if part in "qk" else 0).flatten(0, 1)
        for part in order.parts
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _paired(heads: torch.Tensor, rotated: int) -> torch.Tensor:
    """[heads, rows, …] with row i and row i + half of the first `rotated` ones side by side."""
    if not rotated:
        return heads
    half = rotated // 2
    rows = [row for i in range(half) for row in (i, i + half)]
    return heads[:, [*rows, *range(rotated, heads.shape[1])]]
