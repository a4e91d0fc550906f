"""A computation graph: tensors in the order in which they are computed, without their sizes.

What is in a graph, and what each tensor is made of, depends on few things; only the sizes differ
from one context to the next. So each tensor has the number of an amount of bytes, and those are
given when room is sought for all of it (allocation.py).
"""

from typing import NamedTuple

NOTHING = 0  # the number of no bytes at all


class Node(NamedTuple):
    """A tensor of an `amount` of bytes that is made of `reads`; `over`: it may take the place of
    one that nothing else reads. A view has no memory of its own: `of` is the tensor that it is of,
    and it `looks` at that alone, or writes into it. What writes elsewhere, such as into a cache,
    takes nothing. An input is `given` before the graph runs; what is `kept` is an output; of what
    lies `outside`, in a cache, that amount is copied where another place reads it. `place` is where
    it is computed, if that is settled from the first: where its weights lie, or the cache that it
    writes."""

    amount: int
    reads: tuple[int, ...] = ()
    outside: int = NOTHING
    over: bool = False
    of: int | None = None
    looks: bool = False
    given: bool = False
    kept: bool = False
    place: int | None = None


class Graph:
    """What is read from elsewhere, such as weights and caches, is not among its tensors."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def put(self, node: Node) -> int:
        """Its number, by which others read it."""
        self.nodes.append(node)
        return len(self.nodes) - 1

    def add(self, amount: int, *reads: int, over: bool = False, kept: bool = False) -> int:
        return self.put(Node(amount, reads, over=over, kept=kept))

    def view(self, of: int) -> int:
        """Another look at a tensor that is no view."""
        return self.put(Node(self.nodes[of].amount, (of,), of=of, looks=True))

    def use(self, *reads: int) -> None:
        """What writes elsewhere."""
        self.put(Node(NOTHING, reads))
