"""llama.cpp's compute buffers: the graph of one micro-batch, laid out on device and host with the
sizes of a model and of a start."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from .allocation import reach
from .building import Amount, Built, Held, Outline, Start, built, settled
from .sizes import GraphSizes, layout_of, start_sizes
from .slots import Layout
from .templates import Mode

_FLOAT = 4  # bytes
# Of which room is made for a micro-batch of one sequence, too: what they keep grows with the square
# of its tokens
ALSO_ALONE = frozenset({"kimi-linear", "minimax-01"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """What a graph is made of: the model's sizes, and the micro-batch. `outputs` are the tokens
    whose logits are computed. With `may_leave` llama.cpp drops flash attention that would not run
    where its layer lies."""

    architecture: str
    mode: Mode
    sizes: GraphSizes
    tokens: int
    outputs: int
    layout: Layout
    may_leave: bool = False

    @property
    def outline(self) -> Outline:
        shared: Start = "" if self.layout.streams > 1 else "one stream"
        return Outline(
            architecture=self.architecture,
            mode=self.mode,
            layers=self.sizes.kinds,
            start="alone" if self.layout.count == 1 else shared,
        )


class Computed(NamedTuple):
    """Bytes of a compute buffer; `is_followed`: every tensor is known, and every layer is one that
    llama.cpp was asked of."""

    nbytes: int
    is_followed: bool


@lru_cache(maxsize=4096)
def computed(shape: Shape, held: Held, place: int) -> Computed:
    """What `shape` takes on device or host, where the device holds so much."""
    own = settled(shape.outline, held, may_leave=shape.may_leave)
    found = [
        _laid_out(one, own._replace(start=one.outline.start), held, place)
        for one in _reserved(shape)
    ]
    return Computed(
        nbytes=max(one.nbytes for one in found),
        is_followed=all(one.is_followed for one in found),
    )


def _reserved(shape: Shape) -> Iterator[Shape]:
    """The graphs that llama.cpp makes room for (llama_context::sched_reserve)."""
    yield shape
    if shape.architecture in ALSO_ALONE and shape.layout.count > 1:
        yield replace(shape, layout=replace(shape.layout, alone=True))


def _laid_out(shape: Shape, outline: Outline, held: Held, place: int) -> Computed:
    graph = built(outline, held)
    every = [_of_start(own, shape) for own in (shape.sizes.outer, *shape.sizes.layers)]
    found = [_bytes(amount, every) for amount in graph.amounts]
    hidden = _FLOAT * every[0]["E"] * every[0]["T"]
    nbytes = tuple(hidden if one is None else one for one in found)
    return Computed(_reach(graph, place, nbytes), graph.is_followed and None not in found)


def _of_start(own: Mapping[str, int], shape: Shape) -> Mapping[str, int]:
    """A layer's sizes, and what this start makes of them."""
    layout = layout_of(shape.architecture, shape.layout)
    window = shape.sizes.window
    return {**own, **start_sizes(layout, shape.tokens, shape.outputs, window, own)}


def _bytes(amount: Amount, every: Sequence[Mapping[str, int]]) -> int | None:
    """None where a size is not known: then a tensor of the hidden size stands for it."""
    try:
        return amount.size.of(every[amount.sizes])
    except KeyError:
        return None


@lru_cache(maxsize=4096)
def _reach(graph: Built, place: int, nbytes: tuple[int, ...]) -> int:
    return reach(graph.steps[place], nbytes)
