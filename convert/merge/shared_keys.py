"""The one K head of a group, and how the queries of its members are turned to read it."""

import torch

from .freedom import Freedom
from .head_maps import HeadMaps
from .ladder import MergeMethod
from .method_rules import METHOD_RULES
from .methods import HEAD_MAKERS
from .row_blocks import RowBlock, blocks_of, renorm_scale
from .shared_head import SharedHead, averaging_head


def key_maps(
    queries: torch.Tensor,
    keys: torch.Tensor,
    key_mean: torch.Tensor,
    freedom: Freedom,
    method: MergeMethod,
) -> HeadMaps:
    """The maps of m K heads to one, and back: k = sum_h encode_h k_h, q_h -> decode_h^T q_h.

    `queries` [m, d, d] are the second moments of the queries that read each, summed over them;
    `keys` [m*d, m*d] and `key_mean` [m*d] those of the K heads. What is lost is the mean square
    error of the scores, with queries and keys independent.
    """
    blocks, sizes = key_blocks(queries, keys, key_mean, freedom)
    means = [_mean_of_sizes(block, sizes) for block in blocks]
    makers = HEAD_MAKERS[method]
    if METHOD_RULES[method].undone_by_norms and freedom.head_norms and not freedom.keys:
        heads = means
    else:
        make = makers.mapped if freedom.keys else makers.unmapped
        heads = [make(block, renorm_scale(blocks)) for block in blocks]
    encode, decode = torch.zeros_like(queries), torch.zeros_like(queries)
    for block, head in zip(blocks, heads, strict=True):
        block.write(head.encode, encode)
        block.write(head.decode, decode)
    return HeadMaps(
        encode=encode / (sizes / sizes.mean())[:, None, None],
        decode=decode,
        lost=_lost(blocks, heads, freedom),
        mean_lost=_lost(blocks, means, freedom),
        energy=sum(block.energy for block in blocks),
    )


def key_blocks(
    queries: torch.Tensor, keys: torch.Tensor, key_mean: torch.Tensor, freedom: Freedom
) -> tuple[list[RowBlock], torch.Tensor]:
    """What `key_maps` solves, and the sizes [m] that heads were divided by: 1, or their own where a
    norm does that to each of them."""
    width = queries.shape[-1]
    sizes = torch.ones_like(key_mean[::width])
    if freedom.head_norms and not freedom.keys:
        sizes = _positive(keys.diagonal().unflatten(0, (-1, width)).mean(-1)).sqrt()
        queries = queries / _positive(queries.diagonal(dim1=-2, dim2=-1).sum(-1))[:, None, None]
        wide = sizes.repeat_interleave(width)
        keys, key_mean = keys / torch.outer(wide, wide), key_mean / wide
    return blocks_of(queries, keys, key_mean, freedom), sizes


def _mean_of_sizes(block: RowBlock, sizes: torch.Tensor) -> SharedHead:
    """Their mean, of heads that were divided by `sizes` relative to the mean size."""
    mean = averaging_head(block.weight)
    relative = (sizes / sizes.mean())[:, None, None]
    return SharedHead(encode=mean.encode * relative, decode=mean.decode)


def _lost(blocks: list[RowBlock], heads: list[SharedHead], freedom: Freedom) -> float:
    """What the heads lose; under a norm of each head, at the scale that loses least."""
    lost = sum(block.lost(head) for block, head in zip(blocks, heads, strict=True))
    if freedom.keys or not freedom.head_norms:
        return lost
    energy = sum(block.energy for block in blocks)
    nothing = [
        SharedHead(encode=-head.encode, decode=head.decode) for head in heads
    ]  # lost(t) = energy - 2 t cross + t^2 own
    mirrored = sum(block.lost(head) for block, head in zip(blocks, nothing, strict=True))
    cross, own = (mirrored - lost) / 4, (mirrored + lost) / 2 - energy
    return energy - cross**2 / own if own > 0 else energy


def _positive(sizes: torch.Tensor) -> torch.Tensor:
    """The same with 1 in place of 0."""
    return torch.where(sizes > 0, sizes, 1.0)
