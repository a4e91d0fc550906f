"""The memory of a computation graph, as ggml's allocator finds room for it.

ggml/src/ggml-alloc.c: a tensor goes into the smallest free block that holds it, else at the end;
what nobody reads any more is freed; and some operations write over what they read. What counts is
how far the blocks reach, holes included, which no sum of live tensors gives.
"""

from bisect import insort
from collections.abc import Sequence
from typing import NamedTuple


class Node(NamedTuple):
    """A tensor of `size` bytes that is made of `reads`; `over`: it may take the place of one that
    nothing else reads. A view has no memory of its own: `of` is the tensor that it is of, and it
    `looks` at that alone, or writes into it. What writes elsewhere, such as into a cache, has no
    size. An input is `given` before the graph runs; what is `kept` is an output; of what lies
    `outside`, in a cache, those bytes are copied where another place reads it. `place` is where it
    is computed, if that is settled from the first: where its weights lie, or the cache that it
    writes."""

    size: int
    reads: tuple[int, ...] = ()
    outside: int = 0
    over: bool = False
    of: int | None = None
    looks: bool = False
    given: bool = False
    kept: bool = False
    place: int | None = None


class Graph:
    """Tensors in the order in which they are computed. What is read from elsewhere, such as weights
    and caches, is not among them."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def put(self, node: Node) -> int:
        """Its number, by which others read it."""
        self.nodes.append(node)
        return len(self.nodes) - 1

    def add(self, size: int, *reads: int, over: bool = False, kept: bool = False) -> int:
        return self.put(Node(size=size, reads=reads, over=over, kept=kept))

    def view(self, of: int) -> int:
        """Another look at a tensor that is no view."""
        return self.put(Node(size=self.nodes[of].size, reads=(of,), of=of, looks=True))

    def use(self, *reads: int) -> None:
        """What writes elsewhere."""
        self.put(Node(size=0, reads=reads))

    def reach(self) -> int:
        """Bytes of the one buffer that holds all of it."""
        return reach(self.nodes, range(len(self.nodes)), [0] * len(self.nodes))[0]


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
        insort(self.free, (offset, size))
        at = self.free.index((offset, size))
        if at + 1 < len(self.free) and offset + size == self.free[at + 1][0]:
            self.free[at : at + 2] = [(offset, size + self.free[at + 1][1])]
        before = self.free[at - 1] if at else None
        if before and sum(before) == offset:
            self.free[at - 1 : at + 1] = [(before[0], before[1] + self.free[at][1])]


def reach(nodes: Sequence[Node], order: Sequence[int], places: Sequence[int]) -> tuple[int, int]:
    """Bytes of the buffers of both places that hold all `nodes`, which are computed in this order,
    each at its place (0 or 1). Inputs lie there from the first."""
    layout = _Layout(nodes, places)
    for index in range(len(nodes)):
        if nodes[index].given:
            layout.find_room(index)
    for index in order:
        layout.compute(index)
    return layout.blocks[0].reach, layout.blocks[1].reach


class _Layout:
    def __init__(self, nodes: Sequence[Node], places: Sequence[int]) -> None:
        self.nodes, self.places = nodes, places
        self.blocks = (_Blocks(), _Blocks())
        self.rooms: dict[int, tuple[int, int, int]] = {}  # place, offset and size
        self.readers, self.views = [0] * len(nodes), [0] * len(nodes)
        for node in nodes:
            if node.of is not None:
                self.views[node.of] += 1
            for read in node.reads:
                self.readers[read] += 1

    def compute(self, index: int) -> None:
        node = self.nodes[index]
        if not node.given:
            self.find_room(index)
        for read in node.reads:
            self.readers[read] -= 1
            if self.readers[read] or self.views[read]:
                continue
            source = self.nodes[read].of
            if source is None:
                self._free(read)
                continue
            self.views[source] -= 1
            if not self.readers[source] and not self.views[source]:
                self._free(source)

    def find_room(self, index: int) -> None:
        node, place = self.nodes[index], self.places[index]
        if node.of is not None or not node.size:
            return
        over = self._written_over(node) if node.over else None
        if over is not None:
            self.rooms[index] = self.rooms.pop(over)
            return
        size = -(-node.size // _ALIGNMENT) * _ALIGNMENT
        self.rooms[index] = (place, self.blocks[place].take(size), size)

    def _free(self, index: int) -> None:
        if index in self.rooms and not self.nodes[index].kept:
            place, offset, size = self.rooms.pop(index)
            self.blocks[place].give(offset, size)

    def _written_over(self, node: Node) -> int | None:
        """Whose memory `node` takes: of one of the same size that nothing else reads or looks at.
        What is read through a view is never written over (ggml_gallocr_is_own)."""
        for read in node.reads:
            source = self.nodes[read]
            alone = self.readers[read] == 1 and self.views[read] == 0 and not source.kept
            if read in self.rooms and alone and source.size == node.size:
                return read
        return None
