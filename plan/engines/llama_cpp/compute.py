"""llama.cpp's compute buffers: the graph of one micro-batch, laid out on device and host.

The graph is put together from what llama.cpp itself makes of a few layers (templates.py), with the
sizes of this model and this start.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from .expansion import expanded, renumbered
from .graph import Graph, Node
from .schedule import DEVICE, HOST, buffers, places_of
from .sizes import LayerSizes, layout_of, start_sizes
from .slots import Layout
from .templates import (
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

_FLOAT = 4  # bytes
_LITERAL = 4096  # bytes; what is more than that and follows from no size was not understood
_PERIOD = 12  # layers, of which patterns of 1, 2, 3, 4 and 6 are parts
_ROWS = size_of("8*T")  # where values are kept that are not transposed
# Where a sequence alone takes most, for what grows with the square of its tokens
_ALSO_ALONE = frozenset({"kimi-linear", "minimax-01"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """What a graph is made of: the model's layers, and the micro-batch. `outputs` are the tokens
    whose logits are computed; `outer` the sizes outside the layers. With `may_leave` llama.cpp
    drops flash attention that would not run where its layer lies; where that is so, it has `left`,
    and values, which were not kept transposed, are turned."""

    architecture: str
    mode: Mode
    layers: tuple[LayerSizes, ...]
    outer: tuple[tuple[str, int], ...]
    tokens: int
    outputs: int
    layout: Layout
    may_leave: bool = False
    left: bool = False


class Held(NamedTuple):
    """What the device holds: each layer, its experts, and the output; `whole`: -ngl asks for every
    layer. On a machine without a device it holds nothing."""

    layers: tuple[bool, ...]
    experts: tuple[bool, ...]
    output: bool
    whole: bool


class Computed(NamedTuple):
    """Bytes of the compute buffers of device and host; `is_followed`: every tensor is known, and
    every layer is one that llama.cpp was asked of."""

    device: int
    host: int
    is_followed: bool


@lru_cache(maxsize=4096)
def computed(shape: Shape, held: Held) -> Computed:
    """What `shape` takes where the device holds so much."""
    if shape.may_leave and shape.mode == "flash" and _leaves(shape, held):
        shape = replace(shape, mode="scores", left=True)
    found = [_laid_out(one, held) for one in _reserved(shape)]
    return Computed(
        device=max(one.device for one in found),
        host=max(one.host for one in found),
        is_followed=all(one.is_followed for one in found),
    )


def _reserved(shape: Shape) -> Iterator[Shape]:
    """The graphs that llama.cpp makes room for (llama_context::sched_reserve)."""
    yield shape
    if shape.architecture in _ALSO_ALONE and shape.layout.count > 1:
        yield replace(shape, layout=replace(shape.layout, count=1, streams=1))


def _laid_out(shape: Shape, held: Held) -> Computed:
    build = _Build(shape, held)
    return Computed(*buffers(build.nodes()), build.is_followed and not build.unknown)


def _leaves(shape: Shape, held: Held) -> bool:
    """Whether flash attention of a layer is computed elsewhere (llama_context::resolve_fused_ops,
    which tries with a token for each sequence: then llama.cpp ties norms to their layers)."""
    if held.whole or not any(held.layers):
        return False
    build = _Build(shape, held._replace(whole=True))
    places = places_of(build.nodes())
    return any(places[node] != place for node, place in build.flash.items())


def _of_start(found: Sequence[Template], layout: Layout) -> list[Template]:
    """Those that were recorded of so many slots and streams, where they are others."""
    starts = [""] if layout.streams > 1 else ["one stream", ""]
    if layout.count == 1:
        starts = ["alone", *starts]
    present = {one.start for one in found}
    start = next((one for one in starts if one in present), "")
    return [one for one in found if one.start == start]


def _is_of_values(name: str) -> bool:
    """Whether an input says where values are kept."""
    return name.startswith("attn_inp_v_idxs")


class _Layer(NamedTuple):
    section: Section
    sizes: LayerSizes
    here: bool
    experts: bool


def _without_repeats(layers: list[_Layer]) -> list[_Layer]:
    """Leaves out whole periods of layers that repeat: where the last ones find room may depend on
    how many there are, but not on how many periods."""
    keys = [(id(layer.section), *layer[1:]) for layer in layers]
    found, at = list[_Layer](), 0
    while at < len(layers):
        end = at
        while end + _PERIOD < len(layers) and keys[end] == keys[end + _PERIOD]:
            end += 1
        left_out = (end - at) // _PERIOD * _PERIOD
        stop = end + _PERIOD if left_out else at + 1
        found += layers[at : stop - left_out]
        at = stop
    return found


class _Build:
    """One graph while it is made."""

    def __init__(self, shape: Shape, held: Held) -> None:
        self.shape, self.held = shape, held
        self.graph = Graph()
        self.windowed = any(layer.window for layer in shape.layers)
        found = templates(shape.architecture, shape.mode) or templates(shape.architecture, "flash")
        self.found = _of_start(
            [one for one in found if one.windowed == self.windowed], shape.layout
        )
        windows = any(layer.windowed for one in self.found for layer in one.layers)
        self.is_followed = bool(self.found) and windows == self.windowed
        self.found = self.found or _of_start(found, shape.layout)
        self.unknown: set[str] = set()
        self.inputs: dict[str, int] = {}
        self.done: list[list[int]] = []
        self.asked: list[int] = []
        self.flash: dict[int, int] = {}  # where the layers lie of flash attention's nodes

    def nodes(self) -> list[Node]:
        layers = self._layers()
        ending = ending_for(self.found, layers[-1].sizes.holds)
        before = self.found[0].before
        outer = self._sizes(self.shape.outer)
        self._add_inputs([before, *(layer.section for layer in layers), ending], outer)
        self._add(before, outer, [])
        past: list[_Layer] = []
        for layer in layers:
            past.append(layer)
            self._add(layer.section, self._sizes(layer.sizes.sizes), past[::-1])
        self._add(ending, outer, past[::-1])
        last = self.graph.nodes[-1]
        self.graph.nodes[-1] = last._replace(kept=True)
        order = expanded(self.graph.nodes, self.asked)
        self.flash = {order.index(i): place for i, place in self.flash.items()}
        return renumbered(self.graph.nodes, order)

    def _layers(self) -> list[_Layer]:
        """As many as need the memory of all: others find what those before them have left."""
        shape, held = self.shape, self.held
        self.is_followed &= all(
            any(section.holds == own.holds for one in self.found for section in one.layers)
            for own in set(shape.layers)
        )
        every = [
            _Layer(self._section(i, own), own, held.layers[i], held.experts[i])
            for i, own in enumerate(shape.layers)
        ]
        constants = (t.kind == "l" for layer in every for t in layer.section.tensors)
        return every if any(constants) else _without_repeats(every)

    def _section(self, index: int, own: LayerSizes) -> Section:
        wanted = Wanted(
            layer=index,
            layers=len(self.shape.layers),
            holds=own.holds,
            windowed=own.window is not None,
        )
        return section_for(self.found, wanted)

    def _sizes(self, own: Iterable[tuple[str, int]]) -> Mapping[str, int]:
        shape, sizes = self.shape, dict(own)
        window = next((layer.window for layer in shape.layers if layer.window), None)
        layout = layout_of(shape.architecture, shape.layout)
        start = start_sizes(layout, shape.tokens, shape.outputs, window, sizes)
        return {**sizes, **start}

    def _bytes(self, size: Size, sizes: Mapping[str, int]) -> int:
        """For a tensor of which a size is not known stands one of the hidden size."""
        self.is_followed &= bool(size.names) or size.of(sizes) <= _LITERAL
        unknown = {name for name in size.names if name not in sizes}
        self.unknown |= unknown
        return size.of(sizes) if not unknown else _FLOAT * sizes["E"] * sizes["T"]

    def _add_inputs(self, sections: Iterable[Section], sizes: Mapping[str, int]) -> None:
        """Those that are read, in their order, and those that nothing reads."""
        read = {
            word[1:]
            for section in sections
            for tensor in section.tensors
            for word in (*tensor.reads, tensor.of or "")
            if word.startswith("@")
        }
        for template in self.found:
            for name, size in template.inputs.items():
                is_unread = name in template.unread and template is self.found[0]
                if name not in self.inputs and (name in read or is_unread):
                    nbytes = self._bytes(
                        _ROWS if self.shape.left and _is_of_values(name) else size, sizes
                    )
                    self.inputs[name] = self.graph.put(Node(size=nbytes, given=True))

    def _add(self, section: Section, sizes: Mapping[str, int], past: list[_Layer]) -> None:
        own: list[int] = []
        for tensor in section.tensors:
            reads = tuple(self._number(word, own) for word in tensor.reads)
            size = self._bytes(tensor.size, sizes)
            node = Node(
                size=0 if tensor.kind == "k" else size,
                outside=size if tensor.kind == "k" else 0,
                reads=reads,
                over=tensor.over,
                of=None if tensor.of is None else self._number(tensor.of, own),
                looks=tensor.looks,
                kept=tensor.kept,
                given=tensor.kind in "lk",
                place=self._place(tensor, past),
            )
            own.append(self._sum(node, sizes) if tensor.kind == "s" else self.graph.put(node))
            if tensor.values and self.shape.left:
                own[-1] = self.graph.add(size, own[-1])
            if tensor.asked:
                self.asked.append(own[-1])
            if tensor.flash and past:
                self.flash[own[-1]] = DEVICE if past[0].here else HOST
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

    def _sum(self, node: Node, sizes: Mapping[str, int]) -> int:
        """Of what the experts that a token visits give: looked at one by one, and added up."""
        (of,) = node.reads
        each = [
            self.graph.put(Node(size=node.size, reads=(of,), of=of, looks=True))
            for _ in range(sizes["used"])
        ]
        total, *rest = each
        for part in rest:
            total = self.graph.add(node.size, total, part, over=True)
        return total if rest else self.graph.add(node.size, total)
