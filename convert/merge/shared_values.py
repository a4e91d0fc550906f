"""The one V head of a group, and how the output projections of its members read it."""

from collections.abc import Sequence

import torch

from .freedom import Freedom
from .head_maps import HeadMaps
from .ladder import MergeMethod
from .method_rules import METHOD_RULES
from .methods import HEAD_MAKERS
from .row_blocks import RowBlock, renorm_scale
from .shared_head import averaging_head, lost_by

# Directions of the shared head with less than this share of its energy are rounding.
_ROUNDING = 1e-12


def value_maps(
    outputs: torch.Tensor, mixed: Sequence[torch.Tensor], freedom: Freedom, method: MergeMethod
) -> HeadMaps:
    """The maps of m V heads to one, and back: v = sum_h encode_h v_h, W_o,i -> W_o,i decode_i.

    `outputs` [n, dv, dv] are W_o,i^T W_o,i of the query heads that read the group, in its order;
    `mixed` the second moments [m*dv, m*dv] of its V heads as each query head's weights mix them, or
    one for all. What is lost is the mean square error of what o makes of each query head, summed.
    `merge` is the best of all where `mixed` is one for all; else it finds v in their mean, and what
    every query head reads of it in its own.
    """
    block = value_block(outputs, sum(mixed[1:], mixed[0]) / len(mixed))
    makers = HEAD_MAKERS[method]
    head = (makers.mapped if freedom.values else makers.unmapped)(block, renorm_scale([block]))
    readers = len(outputs) // block.members
    decode = head.decode[0].repeat_interleave(readers, 0)
    if METHOD_RULES[method].reads_apart and freedom.values and len(mixed) > 1:
        decode = torch.stack(
            [_regression(head.row[0], moment, i // readers) for i, moment in enumerate(mixed)]
        )
    mean = averaging_head(block.weight)
    return HeadMaps(
        encode=head.encode[0],
        decode=decode,
        lost=_lost(head.row[0], decode, outputs, mixed),
        mean_lost=_lost(mean.row[0], mean.decode[0].repeat_interleave(readers, 0), outputs, mixed),
        energy=_lost(torch.zeros_like(head.row[0]), decode, outputs, mixed),
    )


def value_block(outputs: torch.Tensor, moments: torch.Tensor) -> RowBlock:
    """What `value_maps` solves, for V heads with `moments` [m*dv, m*dv]."""
    width = outputs.shape[-1]
    return RowBlock(
        weight=outputs.unflatten(0, (len(moments) // width, -1)).sum(1)[None],
        covariance=moments[None],
        counts=1.0,
        real=torch.arange(width, device=outputs.device),
        imaginary=None,
    )


def _regression(row: torch.Tensor, moments: torch.Tensor, member: int) -> torch.Tensor:
    """[dv, dv]: the least-squares estimate of a member from the shared head."""
    rank = len(row)
    crossed = moments[member * rank : (member + 1) * rank] @ row.T
    own = row @ moments @ row.T
    inverse: torch.Tensor = torch.linalg.pinv((own + own.T) / 2, rtol=_ROUNDING, hermitian=True)
    return crossed @ inverse


def _lost(
    row: torch.Tensor, decode: torch.Tensor, outputs: torch.Tensor, mixed: Sequence[torch.Tensor]
) -> float:
    readers = len(outputs) // (row.shape[-1] // row.shape[-2])
    return sum(
        float(lost_by(row, decode[i], i // readers, outputs[i], mixed[i if len(mixed) > 1 else 0]))
        for i in range(len(outputs))
    )
