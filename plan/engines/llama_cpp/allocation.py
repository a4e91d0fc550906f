"""The memory of a computation graph, as ggml's allocator finds room for it.

ggml/src/ggml-alloc.c: a tensor goes into the smallest free block that holds it, else at the end;
what nobody reads any more is freed; and some operations write over what they read. What counts is
how far the blocks reach, holes included, which no sum of live tensors gives.
"""

from bisect import bisect
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .graph import NOTHING, Node

_ALIGNMENT = 128
_ENDLESS = 2**62


class Step(NamedTuple):
    """Room for a tensor, or that of one of those `over` which it may be written, the first that is
    as large; what is `freed` after it."""

    node: int
    amount: int
    over: tuple[int, ...] = ()
    freed: tuple[int, ...] = ()


def steps_of(
    nodes: Sequence[Node], order: Sequence[int], places: Sequence[int]
) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """Of the buffers of both places (0 and 1), for `nodes` that are computed in this order, each at
    its place, which has what it is written over (schedule.py). Inputs lie there from the first."""
    counts = _Counts(nodes)
    found: tuple[list[Step], list[Step]] = ([], [])
    for i, node in enumerate(nodes):
        if node.given:
            found[places[i]].append(Step(i, node.amount))
    for i in order:
        node = nodes[i]
        amount = NOTHING if node.given or node.of is not None else node.amount
        over = tuple(counts.alone(node)) if node.over else ()
        freed = list(counts.freed_by(node))
        for place, steps in enumerate(found):
            own = amount if place == places[i] else NOTHING
            here = tuple(one for one in freed if places[one] == place)
            if own or here:
                steps.append(Step(i, own, over if own else (), here))
    return tuple(found[0]), tuple(found[1])


class _Counts:
    """How many have yet to read each tensor, and to look at it."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self.readers, self.views = [0] * len(nodes), [0] * len(nodes)
        for node in nodes:
            if node.of is not None:
                self.views[node.of] += 1
            for read in node.reads:
                self.readers[read] += 1

    def alone(self, node: Node) -> Iterator[int]:
        """What nothing but `node` reads or looks at. What is read through a view is never written
        over (ggml_gallocr_is_own)."""
        for read in node.reads:
            source = self.nodes[read]
            is_own = source.of is None and not source.kept
            if is_own and self.readers[read] == 1 and self.views[read] == 0:
                yield read

    def freed_by(self, node: Node) -> Iterator[int]:
        """What nobody wants once `node` is computed."""
        for read in node.reads:
            self.readers[read] -= 1
            if self.readers[read] or self.views[read]:
                continue
            source = self.nodes[read].of
            if source is None:
                yield from self._unless_kept(read)
                continue
            self.views[source] -= 1
            if not self.readers[source] and not self.views[source]:
                yield from self._unless_kept(source)

    def _unless_kept(self, index: int) -> Iterator[int]:
        if not self.nodes[index].kept:
            yield index


def reach(steps: Sequence[Step], amounts: Sequence[int]) -> int:
    """Bytes of a buffer, where the amounts that its `steps` name have so many."""
    blocks = _Blocks()
    aligned = [-(-amount // _ALIGNMENT) * _ALIGNMENT for amount in amounts]
    rooms: dict[int, tuple[int, int]] = {}  # the amount, and where it begins
    for node, amount, over, freed in steps:
        if size := aligned[amount]:
            for source in over:
                held = rooms.get(source)
                if held and amounts[held[0]] == amounts[amount]:
                    rooms[node] = rooms.pop(source)
                    break
            else:
                rooms[node] = (amount, blocks.take(size))
        for source in freed:
            if held := rooms.pop(source, None):
                blocks.give(held[1], aligned[held[0]])
    return blocks.reach


class _Blocks:
    """Free blocks by their offset; the last one has no end."""

    def __init__(self) -> None:
        self.offsets, self.sizes = [0], [_ENDLESS]
        self.reach = 0

    def take(self, size: int) -> int:
        """From the smallest that holds it; of those that are alike, from the last."""
        sizes, index, least = self.sizes, -1, _ENDLESS
        for at, room in enumerate(sizes):
            if size <= room <= least:
                index, least = at, room
        offset = self.offsets[index]
        if least == size:
            del self.offsets[index], sizes[index]
        else:
            self.offsets[index] = offset + size
            sizes[index] = least - size
        if index + 1 == len(sizes):
            self.reach = max(self.reach, offset + size)
        return offset

    def give(self, offset: int, size: int) -> None:
        offsets, sizes = self.offsets, self.sizes
        at = bisect(offsets, offset)
        if offset + size == offsets[at]:
            offsets[at], sizes[at] = offset, size + sizes[at]
        else:
            offsets.insert(at, offset)
            sizes.insert(at, size)
        if at and offsets[at - 1] + sizes[at - 1] == offset:
            sizes[at - 1] += sizes[at]
            del offsets[at], sizes[at]
