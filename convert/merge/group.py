"""One group of K/V heads, merged: its maps applied to the weights that they belong to."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from .attention import AttentionWeights, Freedom, Moments
from .keys import key_maps
from .ladder import MergeMethod
from .maps import HeadMaps, agree, kept, pooled, turned
from .moments import steadied, white_product
from .values import value_maps


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
    moments: Moments,
    method: MergeMethod,
) -> MergedGroup:
    """Merge the K/V heads `members`; the other arguments are of the whole attention."""
    own = _taken(weights, members)
    means = _value_means(freedom, own, members, moments)
    keys = _key_maps(own, freedom, members, moments, method)
    values = _value_maps(own, freedom, members, moments, means, method)
    readers = keys.decode.repeat_interleave(own.group_size, 0).mT
    merged = AttentionWeights(
        q=turned(readers, own.q),
        k=pooled(keys.encode, own.k),
        v=pooled(values.encode, own.v),
        o=turned(values.decode.mT, own.o.mT).mT,
        q_bias=None if own.q_bias is None else turned(readers, own.q_bias[..., None])[..., 0],
        k_bias=_key_bias(own, freedom, keys, moments.key_mean[_rows(members, own.k)], method),
        v_bias=None if own.v_bias is None else pooled(values.encode, own.v_bias),
        o_bias=None if means is None else _output_shift(own.o, values, means),
    )
    return MergedGroup(weights=merged, keys=keys, values=values)


def _taken(weights: AttentionWeights, members: Sequence[int]) -> AttentionWeights:
    """The heads of a group, in float64, in its order."""
    heads, queries = list(members), queries_of(members, weights.group_size)

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


def queries_of(members: Sequence[int], group_size: int) -> list[int]:
    """The query heads that read the K/V heads `members`, in their order."""
    return [head * group_size + reader for head in members for reader in range(group_size)]


def _key_maps(
    own: AttentionWeights,
    freedom: Freedom,
    members: Sequence[int],
    moments: Moments,
    method: MergeMethod,
) -> HeadMaps:
    rows = _rows(members, own.k)
    keys = steadied(moments.keys[rows[:, None], rows], white_product(own.k, own.k_bias))
    queries = _query_moments(own, members, moments)
    same = agree(own.k, own.k_bias)
    maps = key_maps(
        queries, keys, moments.key_mean[rows].double(), freedom, "mean" if same else method
    )
    return kept(maps) if same else maps


def _key_bias(
    own: AttentionWeights,
    freedom: Freedom,
    keys: HeadMaps,
    key_mean: torch.Tensor,
    method: MergeMethod,
) -> torch.Tensor | None:
    """[1, d]: the bias of the shared head. With `merge`, that of rows that are not rotated takes
    their mean, which softmax does not see: keys about 0 lose least when they are rounded."""
    if own.k_bias is None:
        return None
    bias = pooled(keys.encode, own.k_bias)
    if method != "merge" or not (freedom.keys and freedom.key_bias) or agree(own.k, own.k_bias):
        return bias
    mean = pooled(keys.encode, key_mean.double().reshape(own.k_bias.shape))
    mean[:, [*freedom.real, *freedom.imaginary]] = 0
    return bias - mean


def _query_moments(own: AttentionWeights, members: Sequence[int], moments: Moments) -> torch.Tensor:
    """[m, d, d]: of all queries that read each K head."""
    each = [
        steadied(
            moments.queries[head],
            white_product(own.q[[i]], None if own.q_bias is None else own.q_bias[[i]]),
        )
        for i, head in enumerate(queries_of(members, own.group_size))
    ]
    by_head: torch.Tensor = torch.stack(each).unflatten(0, (len(members), -1))
    return by_head.sum(1)


def _value_maps(
    own: AttentionWeights,
    freedom: Freedom,
    members: Sequence[int],
    moments: Moments,
    means: Sequence[torch.Tensor] | None,
    method: MergeMethod,
) -> HeadMaps:
    white = white_product(own.v, own.v_bias if means is None else None)
    mixed = [
        steadied(moment if means is None else moment.double() - torch.outer(mean, mean), white)
        for moment, mean in _with_means(_mixed(own, members, moments), means)
    ]
    same = agree(own.v, own.v_bias)
    maps = value_maps(own.o.mT @ own.o, mixed, freedom, "mean" if same else method)
    return kept(maps) if same else maps


def _mixed(
    own: AttentionWeights, members: Sequence[int], moments: Moments
) -> Sequence[torch.Tensor]:
    """The moments of the group's V heads, one for all query heads or one for each."""
    if moments.mixed is not None:
        return [moments.mixed[head] for head in queries_of(members, own.group_size)]
    rows = _rows(members, own.v)
    return [moments.values[rows[:, None], rows]]


def _value_means(
    freedom: Freedom, own: AttentionWeights, members: Sequence[int], moments: Moments
) -> Sequence[torch.Tensor] | None:
    """The means of what `_mixed` gives, where the o bias can take what changes of them."""
    if own.o_bias is None or not (freedom.output_bias and freedom.values):
        return None
    if moments.mixed is not None:
        means = moments.mixed_mean
        if means is None:
            return None
        return [means[head].double() for head in queries_of(members, own.group_size)]
    if moments.value_mean is None:
        return None
    return [moments.value_mean[_rows(members, own.v)].double()]


def _with_means(
    mixed: Sequence[torch.Tensor], means: Sequence[torch.Tensor] | None
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Every moment with its mean, or with 0."""
    return zip(mixed, means or [moment.new_zeros(()) for moment in mixed], strict=True)


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


def _rows(members: Sequence[int], heads: torch.Tensor) -> torch.Tensor:
    """Where the rows of `members` are among those of all heads, `heads` [m, d, E]."""
    width = heads.shape[1]
    first = torch.tensor(list(members), device=heads.device)[:, None] * width
    return (first + torch.arange(width, device=heads.device)).flatten()
