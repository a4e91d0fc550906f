"""From a stored tensor to its heads and back, by the layout that the plan gives."""

from collections.abc import Mapping

import torch

from ..plan.layout import Blocks

Heads = dict[str, torch.Tensor]


def split_heads(tensor: torch.Tensor, layout: Blocks) -> Heads:
    """Part -> [heads, rows, ...] views of `tensor`."""
    rows = tensor.movedim(layout.axis, 0)
    heads: Heads = {}
    start = 0
    for block in layout.blocks:
        end = start + block.heads * block.rows
        heads[block.part] = rows[start:end].unflatten(0, (block.heads, block.rows))
        start = end
    return heads


def join_heads(heads: Mapping[str, torch.Tensor], layout: Blocks) -> torch.Tensor:
    """The inverse: a contiguous tensor that holds the parts as `layout` says."""
    parts = [heads[block.part].flatten(0, 1) for block in layout.blocks]
    rows = parts[0] if len(parts) == 1 else torch.cat(parts)
    return rows.movedim(0, layout.axis).contiguous()
