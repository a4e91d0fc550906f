"""The memory of a computation graph, as ggml's allocator finds room for it.

ggml/src/ggml-alloc.c: a tensor goes into the smallest free block that holds it, else at the end;
what nobody reads any more is freed; and some operations write over what they read. What counts is
how far the blocks reach, holes included, which no sum of live tensors gives.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Node(NamedTuple):
    """A tensor of `size` bytes that is made of `reads`; `over`: it may take the place of one that
    nothing else reads. A view has no memory of its own: `of` is what it looks at. One that is
    `kept` is an output."""

    size: int
    reads: tuple[int, ...] = ()
    over: bool = False
    of: int | None = None
    kept: bool = False


class Graph:
    """The tensors of one device, in the order in which they are computed. What is read from
    elsewhere, such as weights and caches, is not among them."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def add(self, size: float, *reads: int, over: bool = False, kept: bool = False) -> int:
        """Its number, by which others read it."""
        self.nodes.append(Node(size=int(size), reads=reads, over=over, kept=kept))
        return len(self.nodes) - 1

    def view(self, of: int) -> int:
        """Another look at a tensor that is no view."""
        self.nodes.append(Node(size=0, of=of))
        return len(self.nodes) - 1

    def use(self, *reads: int) -> None:
        """What writes elsewhere, such as into the cache."""
        self.nodes.append(Node(size=0, reads=reads))

    def reach(self) -> int:
        """Bytes of the buffer that holds all of it."""
        return _reach(self.nodes)


_ALIGNMENT = 128


class _Blocks:
    """Free blocks by their offset; the last one has no end."""

    def __init__(self) -> None:
        self.free: list[tuple[int, int]] = [(0, 2**62)]
        self.reach = 0

    def take(self, size: int) -> int:
        fitting = [(n, -i) for i, (_, n) in enumerate(self.free[:-1]) if n >= size]
        index = -min(fitting)[1] if fitting else len(self.free) - 1
        offset, room = self.free[index]
        self.free[index] = (offset + size, room - size)
        if room == size:
            del self.free[index]
        self.reach = max(self.reach, offset + size)
        return offset

    def give(self, offset: int, size: int) -> None:
        merged: list[tuple[int, int]] = []
        for at, room in sorted([*self.free, (offset, size)]):
            if merged and sum(merged[-1]) == at:
                merged[-1] = (merged[-1][0], merged[-1][1] + room)
            else:
                merged.append((at, room))
        self.free = merged


def _reach(nodes: Sequence[Node]) -> int:
    children, views = [0] * len(nodes), [0] * len(nodes)
    for node in nodes:
        if node.of is not None:
            views[node.of] += 1
        for read in node.reads:
            children[read] += 1
    blocks, places = _Blocks(), dict[int, tuple[int, int]]()

    def release(index: int) -> None:
        place = places.pop(index, None)
        if place is not None and not nodes[index].kept:
            blocks.give(*place)

    for index, node in enumerate(nodes):
        if node.of is None and node.size:
            size = -(-node.size // _ALIGNMENT) * _ALIGNMENT
            taken = _taken_over(node, nodes, children, views, places) if node.over else None
            if taken is None:
                places[index] = (blocks.take(size), size)
            else:
                places[index] = places.pop(taken)
        for read in node.reads:
            children[read] -= 1
            if children[read] or views[read]:
                continue
            source = nodes[read].of
            if source is None:
                release(read)
                continue
            views[source] -= 1
            if not children[source] and not views[source]:
                release(source)
    return blocks.reach


def _taken_over(
    node: Node,
    nodes: Sequence[Node],
    children: Sequence[int],
    views: Sequence[int],
    places: dict[int, tuple[int, int]],
) -> int | None:
    """Whose memory `node` takes: of one of the same size that nothing else reads or looks at. What
    is read through a view is never written over (ggml_gallocr_is_own)."""
    for read in node.reads:
        source = nodes[read]
        alone = children[read] == 1 and views[read] == 0 and not source.kept
        if read in places and alone and source.size == node.size:
            return read
    return None
