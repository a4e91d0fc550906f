"""Maps of the heads of one group to the head that they share, and how tensors go through them."""

from dataclasses import dataclass, replace

import torch


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadMaps:
    """`encode` [m, d, d] makes the shared head, sum_h encode_h x_h. `decode` [n, d, d] is what each
    reader takes for its own head again, decode_i y: for keys one a K/V head, for values one a query
    head. `lost`, `mean_lost` (of mean pooling) and `energy` (of having no head at all) are in the
    objective's own unit.
    """

    encode: torch.Tensor
    decode: torch.Tensor
    lost: float
    mean_lost: float
    energy: float


def kept(maps: HeadMaps) -> HeadMaps:
    """The maps of heads that are equal already: the first as it is, and readers as they are."""
    encode = torch.zeros_like(maps.encode)
    encode[0] = _identity(encode)
    decode = _identity(maps.decode).expand_as(maps.decode)
    return replace(maps, encode=encode, decode=decode, lost=0.0, mean_lost=0.0)


def agree(heads: torch.Tensor, bias: torch.Tensor | None) -> bool:
    """Whether the heads of a group are equal, and their biases."""
    return all(
        torch.equal(tensor, tensor[:1].expand_as(tensor))
        for tensor in (heads, bias)
        if tensor is not None
    )


def encoded(encode: torch.Tensor, heads: torch.Tensor) -> torch.Tensor:
    """[1, d, …]: the shared head of `heads` [m, d, …]; the first of them bit for bit if it is."""
    if torch.equal(encode[0], _identity(encode)) and not encode[1:].any():
        return heads[:1]
    return torch.einsum("mab,mb...->a...", encode, heads)[None]


def turned(maps: torch.Tensor, heads: torch.Tensor) -> torch.Tensor:
    """[n, d, E]: every head [d, E] after its map [d, d]; bit for bit as it is if that is none."""
    if torch.equal(maps, _identity(maps).expand_as(maps)):
        return heads
    return maps @ heads


def _identity(like: torch.Tensor) -> torch.Tensor:
    return torch.eye(like.shape[-1], dtype=like.dtype, device=like.device)
