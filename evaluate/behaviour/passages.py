"""Passages of a text, spread over it."""

import torch
from torch import Tensor


def passages(ids: Tensor, *, tokens: int, count: int) -> Tensor:
    """[up to count, tokens]: of `ids` ([n]), which is repeated if it is shorter than one passage;
    no two overlap."""
    if len(ids) < tokens:
        ids = ids.repeat(-(-tokens // len(ids)))
    most = max(min(count, len(ids) // tokens), 1)
    places = [number * (len(ids) - tokens) // max(most - 1, 1) for number in range(most)]
    return torch.stack([ids[place : place + tokens] for place in places])
