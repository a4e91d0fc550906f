"""One group of K/V heads, merged: its maps applied to the weights that they belong to."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from .attention_weights import AttentionWeights, Moments
from .freedom import Freedom
from .head_maps import HeadMaps, agree, encoded, kept, turned
from .head_moments import group_moments
from .ladder import MergeMethod
from .method_rules import METHOD_RULES
from .shared_keys import key_maps
from .shared_values import value_maps


@dataclass(frozen=True, kw_only=True, slots=True)
class MergedGroup:
    """The shared K and V head, [1, …] each, and the query heads that read them, in `weights`, in
    float64; its `o_bias` [D] is what the attention's o bias gains, or None."""

    weights: AttentionWeights
    keys: HeadMaps
    values: HeadMaps


def merge_group(
    weights: AttentionWeights,
    freedom: Freedom,
    members: Sequence[int],
    moments: Moments | None,
    method: MergeMethod,
) -> MergedGroup:
    """Merge the K/V heads `members`; the other arguments are of the whole attention."""
    own = _taken(weights, members)
    known = group_moments(moments, own, members)
    means = _value_means(own, freedom, known)
    keys = _key_maps(own, freedom, known, method)
    values = _value_maps(own, freedom, known, means, method)
    readers = keys.decode.repeat_interleave(own.group_size, 0).mT
    merged = AttentionWeights(
        q=turned(readers, own.q),
        k=encoded(keys.encode, own.k),
        v=encoded(values.encode, own.v),
        o=turned(values.decode.mT, own.o.mT).mT,
        q_bias=None if own.q_bias is None else turned(readers, own.q_bias[..., None])[..., 0],
        k_bias=_key_bias(own, freedom, keys, known.key_mean, method),
        v_bias=None if own.v_bias is None else encoded(values.encode, own.v_bias),
        o_bias=None if means is None else _output_shift(own.o, values, means),
    )
    return MergedGroup(weights=merged, keys=keys, values=values)


def _taken(weights: AttentionWeights, members: Sequence[int]) -> AttentionWeights:
    """The heads of a group, in float64, in its order."""
    heads, queries = list(members), weights.queries_of(members)

    def take(tensor: torch.Tensor | None, rows: list[int]) -> torch.Tensor | None:
        return None if tensor is None else tensor[rows].double()

    return AttentionWeights(
        q=weights.q[queries].double(),
        k=weights.k[heads].double(),
        v=weights.v[heads].double(),
        o=weights.o[queries].double(),
        q_bias=take(weights.q_bias, queries),
        k_bias=take(weights.k_bias, heads),
        v_bias=take(weights.v_bias, heads),
        o_bias=weights.o_bias,
    )


def _key_maps(
    own: AttentionWeights, freedom: Freedom, known: Moments, method: MergeMethod
) -> HeadMaps:
    readers: torch.Tensor = known.queries.unflatten(0, (len(own.k), -1))
    queries = readers.sum(1)
    same = agree(own.k, own.k_bias)
    maps = key_maps(queries, known.keys, known.key_mean, freedom, "mean" if same else method)
    return kept(maps) if same else maps


def _key_bias(
    own: AttentionWeights,
    freedom: Freedom,
    keys: HeadMaps,
    key_mean: torch.Tensor,
    method: MergeMethod,
) -> torch.Tensor | None:
    """[1, d]: the bias of the shared head. Where the method centres keys, that of rows that are not
    rotated takes their mean, which softmax does not see: keys about 0 lose least when rounded."""
    if own.k_bias is None:
        return None
    bias = encoded(keys.encode, own.k_bias)
    is_free = freedom.keys and freedom.key_bias
    if not METHOD_RULES[method].centres_keys or not is_free or agree(own.k, own.k_bias):
        return bias
    mean = encoded(keys.encode, key_mean.reshape(own.k_bias.shape))
    mean[:, [*freedom.real, *freedom.imaginary]] = 0
    return bias - mean


def _value_maps(
    own: AttentionWeights,
    freedom: Freedom,
    known: Moments,
    means: Sequence[torch.Tensor] | None,
    method: MergeMethod,
) -> HeadMaps:
    mixed = [known.values] if known.mixed is None else list(known.mixed)
    if means is not None:
        mixed = [
            moment - torch.outer(mean, mean) for moment, mean in zip(mixed, means, strict=True)
        ]
    same = agree(own.v, own.v_bias)
    maps = value_maps(own.o.mT @ own.o, mixed, freedom, "mean" if same else method)
    return kept(maps) if same else maps


def _value_means(
    own: AttentionWeights, freedom: Freedom, known: Moments
) -> Sequence[torch.Tensor] | None:
    """The means of what is mixed, where they are known and the o bias can take what changes."""
    if own.o_bias is None or not (freedom.output_bias and freedom.values):
        return None
    if known.mixed is not None:
        return known.mixed_mean
    return None if known.value_mean is None else [known.value_mean]


def _output_shift(
    outputs: torch.Tensor, values: HeadMaps, means: Sequence[torch.Tensor]
) -> torch.Tensor:
    """[D]: how much less the group's mean output is after the merge, `outputs` [n, D, dv]."""
    readers, (members, width, _) = len(outputs), values.encode.shape
    shift = torch.zeros_like(outputs[0, :, 0])
    for i in range(readers):
        mean = means[i if len(means) > 1 else 0].unflatten(0, (members, width))
        shared = torch.einsum("mab,mb->a", values.encode, mean)
        shift += outputs[i] @ (mean[i * members // readers] - values.decode[i] @ shared)
    return shift
