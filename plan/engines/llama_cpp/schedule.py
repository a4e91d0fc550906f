"""Which tensors of a graph are computed on the device and which on the host, and what is copied.

ggml_backend_sched_split_graph of ggml/src/ggml-backend.cpp: an operation runs where its weights
lie, or the cache that it writes; others run where those beside them do, on the device if either is
there. A tensor that the other side reads is copied once, before the run of operations that first
does.
"""

from collections.abc import Iterable, Sequence

from .graph import NOTHING, Node

DEVICE, HOST = 0, 1


def places_of(nodes: Sequence[Node]) -> list[int]:
    """Of each whether the device or the host computes it."""
    found = [HOST if node.given and node.place is None else node.place for node in nodes]
    computed = [i for i, node in enumerate(nodes) if not node.given and not node.looks]
    for indices, is_spread in (
        (computed, (DEVICE,)),
        (computed[::-1], (DEVICE,)),
        (computed, (DEVICE, HOST)),
        (computed[::-1], (DEVICE, HOST)),
    ):
        _spread(found, indices, is_spread)
    for i, node in enumerate(nodes):
        if node.looks and node.of is not None:
            found[i] = found[node.of]
    return [DEVICE if place is None else place for place in found]


def _spread(found: list[int | None], indices: Iterable[int], places: tuple[int, ...]) -> None:
    """Gives each operation without a place that of the one before it, if it is one of `places`."""
    current: int | None = None
    for i in indices:
        if found[i] is None:
            found[i] = current
        else:
            current = found[i] if found[i] in places else None


def with_copies(
    nodes: Sequence[Node], places: list[int]
) -> tuple[list[Node], list[int], list[int]]:
    """The nodes with the copies among them, their order, and the places of all."""
    every, order = list(nodes), list[int]()
    copies: dict[tuple[int, int], int] = {}
    begun, current = 0, None
    for i, node in enumerate(nodes):
        if node.given:
            continue
        place = places[i]
        if not node.looks and place != current:
            begun, current = len(order), place
        for read in () if node.looks else node.reads:
            if places[read] == place or (read, place) in copies:
                continue
            copies[read, place] = len(every)
            amount = nodes[read].amount or nodes[read].outside
            every += [Node(amount), Node(NOTHING, reads=(read,))]
            places += [place, places[read]]
            order[begun:begun] = [len(every) - 1, len(every) - 2]
            begun += 2
        if not node.looks:
            every[i] = node._replace(reads=tuple(copies.get((r, place), r) for r in node.reads))
        order.append(i)
    return every, order, places
