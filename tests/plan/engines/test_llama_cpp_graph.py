"""How far small graphs reach, laid out by hand after ggml/src/ggml-alloc.c."""

from headcount.plan.engines.llama_cpp.expansion import expanded, renumbered
from headcount.plan.engines.llama_cpp.graph import Graph, Node

KIB = 1024


def test_what_nobody_reads_any_more_makes_room() -> None:
    """a; b of a; c of b takes the place of a."""
    graph = Graph()
    a = graph.add(2 * KIB)
    b = graph.add(KIB, a)
    graph.add(2 * KIB, b)
    assert graph.reach() == 3 * KIB


def test_a_hole_that_is_too_small_stays_one() -> None:
    """c finds 1 KiB before b, and goes behind it: 4 KiB live, and the hole."""
    graph = Graph()
    a = graph.add(KIB)
    b = graph.add(2 * KIB, a)
    c = graph.add(2 * KIB, b)
    graph.use(b, c)
    assert graph.reach() == 5 * KIB


def test_the_smallest_hole_that_holds_it_is_taken() -> None:
    """Holes of 3 and of 1 KiB: the last takes the second, so that 3 KiB more fit in the first."""
    graph = Graph()
    first, between = graph.add(3 * KIB), graph.add(KIB)
    second, end = graph.add(KIB), graph.add(KIB)
    graph.use(first, second)
    small = graph.add(KIB, between)
    large = graph.add(3 * KIB, end)
    graph.use(between, end, small, large)
    assert graph.reach() == 6 * KIB


def test_an_operation_writes_over_what_it_alone_reads() -> None:
    def reach(*, over: bool, again: bool) -> int:
        graph = Graph()
        a = graph.add(KIB)
        b = graph.add(KIB, a, over=over)
        graph.use(a, b) if again else graph.use(b)
        return graph.reach()

    assert reach(over=True, again=False) == KIB
    assert reach(over=True, again=True) == reach(over=False, again=False) == 2 * KIB


def test_what_is_read_through_a_view_is_not_written_over() -> None:
    graph = Graph()
    a = graph.add(KIB)
    graph.add(KIB, graph.view(a), over=True)
    assert graph.reach() == 2 * KIB


def test_a_view_keeps_what_it_looks_at_and_outputs_stay() -> None:
    graph = Graph()
    a = graph.add(KIB)
    view = graph.view(a)
    b = graph.add(KIB, a)
    graph.add(KIB, b, kept=True)
    graph.use(view)
    graph.add(KIB)
    assert graph.reach() == 3 * KIB


def test_tensors_begin_at_multiples_of_128() -> None:
    graph = Graph()
    graph.use(graph.add(1), graph.add(129))
    assert graph.reach() == 128 + 256


def test_what_is_asked_for_brings_what_it_is_made_of() -> None:
    """A state is fetched before the layer in front of it is done, and what nobody wants is not
    computed; what is read first comes first, however it was written down."""
    graph = Graph()
    given = graph.put(Node(size=KIB, given=True))
    up, gate = graph.add(KIB, given), graph.add(2 * KIB, given)
    graph.add(4 * KIB, given)
    done = graph.add(KIB, gate, up)
    state = graph.add(8 * KIB, given)
    last = graph.add(KIB, state, done)
    order = expanded(graph.nodes, [state, last])
    assert order == [given, state, gate, up, done, last]
    sizes = [node.size // KIB for node in renumbered(graph.nodes, order)]
    assert sizes == [1, 8, 2, 1, 1, 1]
    assert renumbered(graph.nodes, order)[-1].reads == (1, 4)
