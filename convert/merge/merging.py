"""An attention with the heads of every group merged."""

from collections.abc import Sequence

import torch

from .attention_weights import AttentionWeights, Groups, Merged, Moments
from .freedom import Freedom
from .head_maps import HeadMaps
from .ladder import MergeMethod
from .merged_group import MergedGroup, merge_group


def merge_attention(
    weights: AttentionWeights,
    freedom: Freedom,
    groups: Groups,
    moments: Moments | None,
    method: MergeMethod,
) -> Merged:
    """The attention with one K and one V head for each of `groups`, tied over its members.

    Sums are made in float64 and rounded once, to the dtype of the weights. Heads that are equal
    already, and a head that is alone, stay as they are, bit for bit. Without `moments` they are
    those of white inputs, as of `white_moments`. ValueError: `groups` do not
    hold every K/V head once, or change an order that `freedom` keeps.
    """
    order = tuple(head for members in groups for head in members)
    if sorted(order) != list(range(len(weights.k))) or not all(groups):
        raise ValueError(f"groups {groups} do not hold each of {len(weights.k)} K/V heads once")
    if not freedom.order and order != tuple(range(len(order))):
        raise ValueError(f"heads keep their places here: groups {groups} would move them")
    parts = [merge_group(weights, freedom, members, moments, method) for members in groups]
    keys, values = [part.keys for part in parts], [part.values for part in parts]
    return Merged(
        weights=_assembled(weights, parts, groups),
        order=order,
        groups=tuple(len(members) for members in groups),
        key_error=_share([maps.lost for maps in keys], keys),
        value_error=_share([maps.lost for maps in values], values),
        key_mean_error=_share([maps.mean_lost for maps in keys], keys),
        value_mean_error=_share([maps.mean_lost for maps in values], values),
    )


def _assembled(
    weights: AttentionWeights, parts: Sequence[MergedGroup], groups: Groups
) -> AttentionWeights:
    """The parts side by side, each K and V head as often as its group has members."""
    made = [part.weights for part in parts]
    sizes = torch.tensor([len(members) for members in groups], device=weights.k.device)

    def queries(heads: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
        present = [head for head in heads if head is not None]
        return torch.cat(present).to(weights.q.dtype) if present else None

    def tied(heads: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
        shared = queries(heads)
        return None if shared is None else shared.repeat_interleave(sizes, 0)

    o_bias = weights.o_bias
    for part in made:
        if part.o_bias is not None and o_bias is not None:
            o_bias = o_bias.double() + part.o_bias
    return AttentionWeights(
        q=torch.cat([part.q for part in made]).to(weights.q.dtype),
        k=torch.cat([part.k for part in made]).to(weights.k.dtype).repeat_interleave(sizes, 0),
        v=torch.cat([part.v for part in made]).to(weights.v.dtype).repeat_interleave(sizes, 0),
        o=torch.cat([part.o for part in made]).to(weights.o.dtype),
        q_bias=queries([part.q_bias for part in made]),
        k_bias=tied([part.k_bias for part in made]),
        v_bias=tied([part.v_bias for part in made]),
        o_bias=None if o_bias is None else o_bias.to(weights.o.dtype),
    )


def _share(lost: Sequence[float], maps: Sequence[HeadMaps]) -> float:
    """What is lost of what there is, within 0 and rounding."""
    energy = sum(part.energy for part in maps)
    return max(0.0, sum(lost)) / energy if energy > 0 else 0.0
