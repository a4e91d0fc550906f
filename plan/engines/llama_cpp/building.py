"""The graph of one micro-batch, put together from what llama.cpp itself makes of a few layers
(templates.py).

It depends on what the layers hold and where they lie, but not on how large they are: a search that
tries many contexts wants it once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from .allocation import Step, steps_of
from .expansion import expanded, renumbered
from .graph import NOTHING, Graph, Node
from .schedule import DEVICE, HOST, places_of, with_copies
from .sizes import OUTER, Kind
from .templates import (
    Fused,
    Mode,
    Section,
    Size,
    Template,
    Tensor,
    Wanted,
    ending_for,
    section_for,
    size_of,
    templates,
)

_LITERAL = 4096  # bytes; what is more than that and follows from no size was not understood
_PERIODS = (12, 10)  # layers, of which patterns of 1, 2, 3, 4, 5 and 6 are parts
_ROWS = size_of("8*T")  # where values are kept that are not transposed
Start = Literal["alone", "one stream", ""]
# Graphs that were recorded of such slots, where they are others; the first that there is
_STARTS: dict[Start, tuple[str, ...]] = {
    "alone": ("alone", "one stream", ""),
    "one stream": ("one stream", ""),
    "": ("",),
}


class Held(NamedTuple):
    """What the device holds: each layer, its experts, and the output; `whole`: -ngl asks for every
    layer. On a machine without a device it holds nothing."""

    layers: tuple[bool, ...]
    experts: tuple[bool, ...]
    output: bool
    whole: bool


class Outline(NamedTuple):
    """What is in a graph, whatever its sizes. `start`: one slot (`alone`), slots over `one stream`,
    or a stream of each. Without flash attention that was dropped when its place was known (`left`),
    values, which were not kept transposed, are turned. `unfused`: single operations put the
    streams of hyper-connections together."""

    architecture: str
    mode: Mode
    layers: tuple[Kind, ...]
    start: Start
    left: bool = False
    unfused: bool = False


class Amount(NamedTuple):
    """Bytes of tensors: a product of the sizes that have this number."""

    size: Size
    sizes: int


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Built:
    """A graph as its allocator goes through it, on device and host. Of the `amounts` the first is
    none at all. `is_followed`: every tensor is known, and every layer is one that llama.cpp was
    asked of."""

    steps: tuple[tuple[Step, ...], tuple[Step, ...]]
    amounts: tuple[Amount, ...]
    is_followed: bool


@lru_cache(maxsize=256)
def built(outline: Outline, held: Held) -> Built:
    """The graph where the device holds so much."""
    build = _Build(outline, held)
    nodes = build.nodes()
    steps = steps_of(*with_copies(nodes, places_of(nodes)))
    return Built(steps=steps, amounts=tuple(build.amounts), is_followed=build.is_followed)


@lru_cache(maxsize=256)
def settled(outline: Outline, held: Held, *, may_leave: bool) -> Outline:
    """Without what is not computed where its layer lies (llama_context::resolve_fused_ops): first
    flash attention, if it `may_leave`, then the operation that puts streams together."""
    if may_leave and outline.mode == "flash" and "flash" in _leaving(outline, held):
        outline = outline._replace(mode="scores", left=True)
    return outline._replace(unfused="joins" in _leaving(outline, held))


@lru_cache(maxsize=256)
def _leaving(outline: Outline, held: Held) -> frozenset[Fused]:
    """llama.cpp tries with a token for each sequence: then it ties norms to their layers."""
    if held.whole or not any(held.layers):
        return frozenset()
    build = _Build(outline, held._replace(whole=True))
    places = places_of(build.nodes())
    return frozenset(
        kind
        for kind, found in build.fused.items()
        if any(places[node] != place for node, place in found.items())
    )


def _is_of_values(name: str) -> bool:
    """Whether an input says where values are kept."""
    return name.startswith("attn_inp_v_idxs")


def _of_start(found: Sequence[Template], start: Start) -> list[Template]:
    """Those that were recorded of such slots, where they are others."""
    present = {one.start for one in found}
    wanted = next((one for one in _STARTS[start] if one in present), "")
    return [one for one in found if one.start == wanted]


class _Layer(NamedTuple):
    section: Section
    sizes: int
    here: bool
    experts: bool


def _without_repeats(layers: list[_Layer], period: int) -> list[_Layer]:
    """Leaves out whole periods of layers that repeat: where the last ones find room may depend on
    how many there are, but not on how many periods."""
    keys = [(id(layer.section), *layer[1:]) for layer in layers]
    found, at = list[_Layer](), 0
    while at < len(layers):
        end = at
        while end + period < len(layers) and keys[end] == keys[end + period]:
            end += 1
        left_out = (end - at) // period * period
        stop = end + period if left_out else at + 1
        found += layers[at : stop - left_out]
        at = stop
    return found


class _Build:
    """One graph while it is made."""

    def __init__(self, outline: Outline, held: Held) -> None:
        self.outline, self.held = outline, held
        self.graph = Graph()
        self.amounts = {Amount(Size(()), OUTER): NOTHING}
        windowed = any(layer.windowed for layer in outline.layers)
        name, mode, unfused = outline.architecture, outline.mode, outline.unfused
        own = templates(name, mode, unfused=unfused)
        others = (templates(name, one) for one in (mode, "flash", "scores"))
        found = own or next(one for one in others if one)
        self.found = _of_start([one for one in found if one.windowed == windowed], outline.start)
        windows = any(layer.windowed for one in self.found for layer in one.layers)
        is_of_mode = bool(own or (not unfused and templates(name, "flash")))
        self.is_followed = bool(self.found) and windows == windowed and is_of_mode
        self.found = self.found or _of_start(found, outline.start)
        self.used = {kind.sizes: kind.used for kind in outline.layers}
        self.used[OUTER] = max(self.used.values())
        self.inputs: dict[str, int] = {}
        self.done: list[list[int]] = []
        self.asked: list[int] = []
        # Where the layers lie of what is fused only if it is computed there
        self.fused: dict[Fused, dict[int, int]] = {"flash": {}, "joins": {}}

    def nodes(self) -> list[Node]:
        layers = self._layers()
        ending = ending_for(self.found, self.outline.layers[-1].holds)
        before = self.found[0].before
        self._add_inputs([before, *(layer.section for layer in layers), ending])
        self._add(before, OUTER, [])
        past: list[_Layer] = []
        for layer in layers:
            past.append(layer)
            self._add(layer.section, layer.sizes, past[::-1])
        self._add(ending, OUTER, past[::-1])
        last = self.graph.nodes[-1]
        self.graph.nodes[-1] = last._replace(kept=True)
        order = expanded(self.graph.nodes, self.asked)
        at = {number: place for place, number in enumerate(order)}
        for kind, own in self.fused.items():
            self.fused[kind] = {at[i]: place for i, place in own.items()}
        return renumbered(self.graph.nodes, order)

    def _layers(self) -> list[_Layer]:
        """As many as need the memory of all: others find what those before them have left."""
        own, held = self.outline.layers, self.held
        met = {section.holds for one in self.found for section in one.layers}
        self.is_followed &= all(kind.holds in met for kind in own)
        every = [
            _Layer(self._section(i, kind), kind.sizes, held.layers[i], held.experts[i])
            for i, kind in enumerate(own)
        ]
        constants = (t.kind == "l" for layer in every for t in layer.section.tensors)
        if any(constants):
            return every
        shorter = (_without_repeats(every, period) for period in _PERIODS)
        return next((one for one in shorter if len(one) < len(every)), every)

    def _section(self, index: int, kind: Kind) -> Section:
        wanted = Wanted(
            layer=index,
            layers=len(self.outline.layers),
            holds=kind.holds,
            windowed=kind.windowed,
        )
        return section_for(self.found, wanted)

    def _amount(self, size: Size, sizes: int) -> int:
        """Its number."""
        self.is_followed &= bool(size.names) or size.of({}) <= _LITERAL
        return self.amounts.setdefault(Amount(size, sizes), len(self.amounts))

    def _add_inputs(self, sections: Iterable[Section]) -> None:
        """Those that are read, in their order, and those that nothing reads."""
        read = set[str]().union(*(section.inputs for section in sections))
        for template in self.found:
            for name, size in template.inputs.items():
                is_unread = name in template.unread and template is self.found[0]
                if name not in self.inputs and (name in read or is_unread):
                    rows = self.outline.left and _is_of_values(name)
                    amount = self._amount(_ROWS if rows else size, OUTER)
                    self.inputs[name] = self.graph.put(Node(amount, given=True))

    def _add(self, section: Section, sizes: int, past: list[_Layer]) -> None:
        own: list[int] = []
        for tensor in section.tensors:
            reads = tuple(self._number(word, own) for word in tensor.reads)
            amount = self._amount(tensor.size, sizes)
            node = Node(
                amount=NOTHING if tensor.kind == "k" else amount,
                outside=amount if tensor.kind == "k" else NOTHING,
                reads=reads,
                over=tensor.over,
                of=None if tensor.of is None else self._number(tensor.of, own),
                looks=tensor.looks,
                kept=tensor.kept,
                given=tensor.kind in "lk",
                place=self._place(tensor, past),
            )
            own.append(self._sum(node, sizes) if tensor.kind == "s" else self.graph.put(node))
            if tensor.values and self.outline.left:
                own[-1] = self.graph.add(amount, own[-1])
            if tensor.asked:
                self.asked.append(own[-1])
            if tensor.fused and past:
                self.fused[tensor.fused][own[-1]] = DEVICE if past[0].here else HOST
        self.done.append(own)

    def _number(self, word: str, own: list[int]) -> int:
        """Of a tensor; where the layer before is not what it was when the graph was recorded, its
        last one."""
        try:
            return self._found(word, own)
        except IndexError:
            self.is_followed = False
            return self.done[-1][-1] if self.done[-1] else len(self.graph.nodes) - 1

    def _found(self, word: str, own: list[int]) -> int:
        if word[0] == "@":
            return self.inputs[word[1:]]
        if word[0] == "p":
            return self.done[-1][-int(word[1:])]
        if word[0] in "bz":
            return self.done["bz".index(word[0])][int(word[1:])]
        if word[0] == "q":
            back, at = word[1:].split(".")
            return self.done[-int(back)][-int(at)]
        return own[int(word)]

    def _place(self, tensor: Tensor, past: list[_Layer]) -> int | None:
        if tensor.pinned and self.held.whole and past:
            return DEVICE if past[0].here else HOST
        if tensor.kind == "l" and past:
            return DEVICE if past[0].here else HOST
        if tensor.place is None:
            return None
        if tensor.place == "embedding":
            return HOST
        if tensor.place == "output":
            is_there = self.held.output
        elif tensor.place == "first":
            is_there = self.held.layers[0]
        else:
            layer = past[min(tensor.back, len(past) - 1)]
            is_there = layer.experts if tensor.place == "experts" else layer.here
        return DEVICE if is_there else HOST

    def _sum(self, node: Node, sizes: int) -> int:
        """Of what the experts that a token visits give: looked at one by one, and added up."""
        (of,) = node.reads
        each = [
            self.graph.put(Node(node.amount, (of,), of=of, looks=True))
            for _ in range(self.used[sizes])
        ]
        total, *rest = each
        for part in rest:
            total = self.graph.add(node.amount, total, part, over=True)
        return total if rest else self.graph.add(node.amount, total)
