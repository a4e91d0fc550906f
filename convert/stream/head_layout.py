"""From a stored tensor to its heads and back, by the layout that the plan gives."""

from collections.abc import Mapping, Sequence

import torch

from headcount.arch.tensors.blocks import Blocks

# Part -> [heads, rows, ...]
ByPart = dict[str, torch.Tensor]


def split_heads(tensor: torch.Tensor, layout: Blocks) -> ByPart:
    """Part -> [heads, rows, ...]: views of `tensor` where the layout allows it."""
    axis = layout.axis if tensor.dim() > 1 else 0
    repeats = tensor.movedim(axis, 0).unflatten(0, (layout.repeats, -1))
    heads: ByPart = {}
    start = 0
    for block in layout.blocks:
        end = start + block.heads * block.rows
        part = repeats[:, start:end].unflatten(1, (block.heads, block.rows))
        heads[block.part] = part.flatten(0, 1)
        start = end
    return heads


def reordered(heads: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    """[heads, rows, ...] with row `order[i]` of every head as its row i; none: as they are."""
    return heads[:, list(order)] if order else heads


def join_heads(heads: Mapping[str, torch.Tensor], layout: Blocks) -> torch.Tensor:
    """The inverse: a contiguous tensor that holds the parts as `layout` says."""
    parts = [
        heads[block.part].unflatten(0, (layout.repeats, block.heads)).flatten(1, 2)
        for block in layout.blocks
    ]
    rows = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
    return rows.flatten(0, 1).movedim(0, layout.axis).contiguous()


def placed_heads(heads: torch.Tensor, slots: Sequence[int | None]) -> torch.Tensor:
    """[len(slots), rows, ...]: head `slots[i]` at place i, zeros where there is none."""
    result = heads.new_zeros((len(slots), *heads.shape[1:]))
    for place, head in enumerate(slots):
        if head is not None:
            result[place] = heads[head]
    return result
