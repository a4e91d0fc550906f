"""How far small graphs reach, laid out by hand after ggml/src/ggml-alloc.c."""

from collections.abc import Sequence

from headcount.plan.engines.llama_cpp.allocation import reach, steps_of
from headcount.plan.engines.llama_cpp.expansion import expanded, renumbered
from headcount.plan.engines.llama_cpp.graph import Graph, Node

KIB = 1024
IN_KIB = [KIB * number for number in range(9)]  # an amount's number says how many KiB it is


def reach_of(graph: Graph, amounts: Sequence[int] = IN_KIB) -> int:
    """Bytes of the one buffer that holds all of it."""
    count = len(graph.nodes)
    return reach(steps_of(graph.nodes, range(count), [0] * count)[0], amounts)


def test_what_nobody_reads_any_more_makes_room() -> None:
    """a; b of a; c of b takes the place of a."""
    graph = Graph()
    a = graph.add(2)
    b = graph.add(1, a)
    graph.add(2, b)
    assert reach_of(graph) == 3 * KIB


def test_a_hole_that_is_too_small_stays_one() -> None:
    """c finds 1 KiB before b, and goes behind it: 4 KiB live, and the hole."""
    graph = Graph()
    a = graph.add(1)
    b = graph.add(2, a)
    c = graph.add(2, b)
    graph.use(b, c)
    assert reach_of(graph) == 5 * KIB


def test_the_smallest_hole_that_holds_it_is_taken() -> None:
    """Holes of 3 and of 1 KiB: the last takes the second, so that 3 KiB more fit in the first."""
    graph = Graph()
    first, between = graph.add(3), graph.add(1)
    second, end = graph.add(1), graph.add(1)
    graph.use(first, second)
    small = graph.add(1, between)
    large = graph.add(3, end)
    graph.use(between, end, small, large)
    assert reach_of(graph) == 6 * KIB


def test_an_operation_writes_over_what_it_alone_reads() -> None:
    def reached(*, over: bool, again: bool) -> int:
        graph = Graph()
        a = graph.add(1)
        b = graph.add(1, a, over=over)
        graph.use(a, b) if again else graph.use(b)
        return reach_of(graph)

    assert reached(over=True, again=False) == KIB
    assert reached(over=True, again=True) == reached(over=False, again=False) == 2 * KIB


def test_what_is_read_through_a_view_is_not_written_over() -> None:
    graph = Graph()
    a = graph.add(1)
    graph.add(1, graph.view(a), over=True)
    assert reach_of(graph) == 2 * KIB


def test_a_view_keeps_what_it_looks_at_and_outputs_stay() -> None:
    graph = Graph()
    a = graph.add(1)
    view = graph.view(a)
    b = graph.add(1, a)
    graph.add(1, b, kept=True)
    graph.use(view)
    graph.add(1)
    assert reach_of(graph) == 3 * KIB


def test_tensors_begin_at_multiples_of_128() -> None:
    graph = Graph()
    graph.use(graph.add(1), graph.add(2))
    assert reach_of(graph, [0, 1, 129]) == 128 + 256


def test_what_is_asked_for_brings_what_it_is_made_of() -> None:
    """A state is fetched before the layer in front of it is done, and what nobody wants is not
    computed; what is read first comes first, however it was written down."""
    graph = Graph()
    given = graph.put(Node(1, given=True))
    up, gate = graph.add(1, given), graph.add(2, given)
    graph.add(4, given)
    done = graph.add(1, gate, up)
    state = graph.add(8, given)
    last = graph.add(1, state, done)
    order = expanded(graph.nodes, [state, last])
    assert order == [given, state, gate, up, done, last]
    sizes = [node.amount for node in renumbered(graph.nodes, order)]
    assert sizes == [1, 8, 2, 1, 1, 1]
    assert renumbered(graph.nodes, order)[-1].reads == (1, 4)
