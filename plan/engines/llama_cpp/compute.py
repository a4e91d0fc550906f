"""llama.cpp's compute buffers: the graph of one micro-batch, laid out on device and host.

The graph is put together from what llama.cpp itself makes of a few layers (templates.py), with the
sizes of this model and this start.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from .graph import Graph, Node
from .schedule import DEVICE, HOST, buffers, places_of
from .sizes import LayerSizes, start_sizes
from .slots import Layout
from .templates import Mode, Section, Size, Tensor, Wanted, ending_for, section_for, templates

_ALIKE = 3  # layers of a kind that a graph is made of
_FLOAT = 4  # bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """What a graph is made of: the model's layers, and the micro-batch. `outputs` are the tokens
    whose logits are computed; `outer` the sizes outside the layers. With `may_leave` llama.cpp
    drops flash attention that would not run where its layer lies."""

    architecture: str
    mode: Mode
    layers: tuple[LayerSizes, ...]
    outer: tuple[tuple[str, int], ...]
    tokens: int
    outputs: int
    layout: Layout
    may_leave: bool = False


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
        shape = replace(shape, mode="scores")
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


class _Layer(NamedTuple):
    section: Section
    sizes: LayerSizes
    here: bool
    experts: bool


class _Build:
    """One graph while it is made."""

    def __init__(self, shape: Shape, held: Held) -> None:
        self.shape, self.held = shape, held
        self.graph = Graph()
        self.windowed = any(layer.window for layer in shape.layers)
        found = templates(shape.architecture, shape.mode) or templates(shape.architecture, "flash")
        self.found = [one for one in found if one.windowed == self.windowed]
        windows = any(layer.windowed for one in self.found for layer in one.layers)
        self.is_followed = bool(self.found) and windows == self.windowed
        self.found = self.found or list(found)
        self.unknown: set[str] = set()
        self.inputs: dict[str, int] = {}
        self.done: list[list[int]] = []
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
        return self.graph.nodes

    def _layers(self) -> list[_Layer]:
        """The first few of each kind, and the last: more of them need no more memory, since each
        layer finds the blocks that the one before has left."""
        shape, held = self.shape, self.held
        empty = LayerSizes(holds=frozenset(), sizes=())
        self.is_followed &= all(
            any(section.holds == own.holds for one in self.found for section in one.layers)
            for own in set(shape.layers)
        )
        every = [
            _Layer(self._section(i, before, own), own, held.layers[i], held.experts[i])
            for i, (before, own) in enumerate(pairwise((empty, *shape.layers)))
        ]
        seen = Counter[tuple[object, ...]]()
        kept = []
        for i, layer in enumerate(every):
            key = (id(layer.section), *layer[1:])
            seen[key] += 1
            kept += [layer] if seen[key] <= _ALIKE or i == len(every) - 1 else []
        return kept

    def _section(self, index: int, before: LayerSizes, own: LayerSizes) -> Section:
        wanted = Wanted(
            layer=index,
            layers=len(self.shape.layers),
            holds=own.holds,
            previous=before.holds,
            windowed=own.window is not None,
        )
        return section_for(self.found, wanted)

    def _sizes(self, own: Iterable[tuple[str, int]]) -> Mapping[str, int]:
        shape, sizes = self.shape, dict(own)
        window = next((layer.window for layer in shape.layers if layer.window), None)
        start = start_sizes(shape.layout, shape.tokens, shape.outputs, window, sizes)
        return {**sizes, **start}

    def _bytes(self, size: Size, sizes: Mapping[str, int]) -> int:
        """For a tensor of which a size is not known stands one of the hidden size."""
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
                    self.inputs[name] = self.graph.put(
                        Node(size=self._bytes(size, sizes), given=True)
                    )

    def _add(self, section: Section, sizes: Mapping[str, int], past: list[_Layer]) -> None:
        own: list[int] = []
        for tensor in section.tensors:
            reads = tuple(self._number(word, own) for word in tensor.reads)
            node = Node(
                size=self._bytes(tensor.size, sizes),
                reads=reads,
                over=tensor.over,
                of=None if tensor.of is None else self._number(tensor.of, own),
                looks=tensor.looks,
                kept=tensor.kept,
                given=tensor.kind == "l",
                place=self._place(tensor, past),
            )
            own.append(self._sum(node, sizes) if tensor.kind == "s" else self.graph.put(node))
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
