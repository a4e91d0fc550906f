"""Partitions of many heads by what their pairs cost."""

from collections.abc import Sequence

import torch

from .attention_weights import Groups

_SWAPS = 2000  # far more than a partition of a hundred heads takes
_GAIN = 1e-12  # less is rounding


def pair_totals(sets: torch.Tensor, pairs: torch.Tensor) -> torch.Tensor:
    """[n]: the cost of each of `sets` [n, m] as its pairs [G, G] tell it: 2/m times their sum.

    That is exact for two heads, for equal ones, and for heads that have nothing in common and are
    of one size (m - 1 of m are lost).
    """
    return pairs[sets[:, :, None], sets[:, None, :]].sum((1, 2)) / sets.shape[1]


def pair_total(groups: Groups, pairs: torch.Tensor) -> float:
    """The sum of `pair_totals` over groups of any sizes."""
    return sum(float(pair_totals(torch.tensor([list(m)]), pairs)) for m in groups)


def grown(shape: Groups, pairs: torch.Tensor) -> Groups:
    """Groups of the sizes of `shape`, one after the other: the two cheapest heads that are left,
    and then whichever adds least."""
    left = list(range(len(pairs)))
    groups = []
    for size in sorted((len(members) for members in shape), reverse=True):
        members: list[int] = []
        while len(members) < size:
            members.append(_cheapest(left, members, pairs))
            left.remove(members[-1])
        groups.append(members)
    return groups


def swapped(groups: Groups, pairs: torch.Tensor) -> Groups:
    """The groups after the best swap of two heads, again and again, until none saves anything.

    Shorter groups have an empty seat, which costs nothing: a head may change places with that too.
    """
    heads, size = len(pairs), max(len(members) for members in groups)
    place = torch.empty(heads, dtype=torch.long)
    for index, members in enumerate(groups):
        place[list(members)] = index
    seats = [i for i, members in enumerate(groups) for _ in range(size - len(members))]
    place = torch.cat([place, torch.tensor(seats, dtype=torch.long)])
    padded = torch.nn.functional.pad(pairs, (0, len(seats), 0, len(seats)))
    for _ in range(_SWAPS):
        saved = _gains(place, len(groups), padded)
        one, other = divmod(int(saved.argmax()), len(place))
        if saved[one, other] <= _GAIN:
            break
        place[[one, other]] = place[[other, one]]
    return [[head for head in range(heads) if place[head] == index] for index in range(len(groups))]


def _cheapest(left: Sequence[int], members: Sequence[int], pairs: torch.Tensor) -> int:
    if members:
        return min(left, key=lambda head: float(pairs[head, list(members)].sum()))
    return min(
        left,
        key=lambda head: min((float(pairs[head, o]) for o in left if o != head), default=0.0),
    )


def _gains(place: torch.Tensor, groups: int, pairs: torch.Tensor) -> torch.Tensor:
    """[n, n]: how much less the pairs inside groups cost if two heads change places."""
    member = torch.nn.functional.one_hot(place, groups).to(pairs.dtype)
    with_group = pairs @ member
    own = with_group.gather(1, place[:, None])
    there = with_group[:, place] - pairs  # in the other's group, without the other
    saved = own + own.T - there - there.T
    return saved.masked_fill(place[:, None] == place, 0)
