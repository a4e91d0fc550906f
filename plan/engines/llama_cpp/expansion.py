"""The order in which the tensors of a graph are computed.

ggml_visit_parents_graph of ggml/src/ggml.c: before a tensor that is asked for comes what it reads,
one after the other, and before each of those what that reads, unless it is there already.
"""

from collections.abc import Iterable, Sequence

from .graph import Node


def expanded(nodes: Sequence[Node], asked: Iterable[int]) -> list[int]:
    """Inputs, and what is `asked` for with all that it is made of, in order: inputs that nothing
    reads before those that are read. What else nothing asks for is not among them."""
    found, seen = list[int](), set[int]()
    for number in asked:
        _visit(nodes, number, found, seen)
    unread = [i for i, node in enumerate(nodes) if node.given and i not in seen]
    return [*unread, *sorted(found, key=lambda i: not nodes[i].given)]


def _visit(nodes: Sequence[Node], number: int, found: list[int], seen: set[int]) -> None:
    if number in seen:
        return
    seen.add(number)
    path = [(number, iter(_sources(nodes[number])))]
    while path:
        current, sources = path[-1]
        source = next((one for one in sources if one not in seen), None)
        if source is None:
            found.append(current)
            path.pop()
        else:
            seen.add(source)
            path.append((source, iter(_sources(nodes[source]))))


def _sources(node: Node) -> tuple[int, ...]:
    return node.reads if node.of is None else (*node.reads, node.of)


def renumbered(nodes: Sequence[Node], order: Sequence[int]) -> list[Node]:
    """The nodes of `order` alone, which refer to each other by their places in it."""
    at = {number: place for place, number in enumerate(order)}
    found = []
    for number in order:
        node = nodes[number]
        of = None if node.of is None else at[node.of]
        found.append(node._replace(reads=tuple(at[read] for read in node.reads), of=of))
    return found
