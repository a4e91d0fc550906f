"""One sighting for many: the first by its name, and how many others are like it."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from headcount.arch.tensors.places import numbered
from headcount.model.units import format_layers

T = TypeVar("T")


def such(names: Sequence[str], what: str = "tensor") -> str:
    """` (64 such tensors, in layers 0-31)` behind what is said of the first of `names`; nothing for
    one alone."""
    if len(names) < 2:
        return ""
    spots = [numbered(name) for name in names]
    layers = sorted({spot.number for spot in spots if spot is not None})
    plural = "s" if len(layers) > 1 else ""
    where = f", in layer{plural} {format_layers(layers)}" if layers and None not in spots else ""
    return f" ({len(names):,} such {what}s{where})"


def by(items: Iterable[T], same: Callable[[T], Hashable]) -> list[list[T]]:
    """`items` in lists of those of which the same is to be said, in order."""
    found: dict[Hashable, list[T]] = {}
    for item in items:
        found.setdefault(same(item), []).append(item)
    return list(found.values())
