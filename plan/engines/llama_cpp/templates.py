"""The graphs that llama.cpp makes of each of its architectures, as its own code was asked for them.

`graphs.jsonl` has what tools/record_llama_graphs.py recorded of models of a few layers: the tensors
of a graph in their order, with sizes as products of others, or sums of some. The second line has
all tensors that there are, to which others refer by their numbers (7+3: three from 7 on). Each of
the others has an `architecture`; a `mode` (`flash`, `scores`: without flash attention, `rotated`:
keys and values that are quantised; each also `unfused`: streams of hyper-connections put together
by single operations); `windowed` if layers have windows; a `start` (`one stream`,
which slots share, `alone`: one slot) where the graph is another then; the `inputs` ("name:size"),
and sections: what there is `before` the layers, `after` them, and in a layer (`sections`). `at`
says in which of how many layers such a section was met, and `holds` what the layer has; `previous`
what the last layer had, before what comes after it.

A tensor is words: its kind (`n`, of its own memory; `v`, a view of %; `u`, which writes elsewhere;
`s`, the sum of the experts' outputs; `l`, a constant, which lies there from the first; `k`, what a
cache holds, whose bytes count where it is copied), followed
by / if llama.cpp asks for it (ggml_build_forward_expand): then it is computed, and before it what
it reads, one after the other, unless that is there; by ~ if it may write over what it reads, ! if
it is an output, ^ if llama.cpp ties it to its layer's device, = if it only looks, * if it is flash
attention, & if it puts streams together, | if it is values; then its bytes; then what it reads: a
number of its section, p1 for the last of the section before (p2, …), q2.1 for that of the one
before it, b0 of `before`, z0 of the first layer, @name of an input; and + with the place of its
weights, and how many layers before they lie.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from math import prod
from typing import Literal, NamedTuple

Mode = Literal["flash", "scores", "rotated"]
Place = Literal["layer", "experts", "embedding", "output", "first"]
# What llama.cpp computes in one operation only where its layer lies: attention, and what puts the
# streams of hyper-connections together
Fused = Literal["flash", "joins"]
_FUSED: Mapping[str, Fused] = {"*": "flash", "&": "joins"}
_PLACES: Mapping[str, Place] = {
    "w": "layer",
    "c": "layer",
    "x": "experts",
    "h": "embedding",
    "o": "output",
    "f": "first",
}


class Size(NamedTuple):
    """Bytes: a sum of products, each a factor times the sizes of some names."""

    terms: tuple[tuple[int, tuple[str, ...]], ...]

    def of(self, sizes: Mapping[str, int]) -> int:
        """Raises KeyError where one is not known."""
        return sum(factor * prod(sizes[name] for name in names) for factor, names in self.terms)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(name for _, names in self.terms for name in names)


class Tensor(NamedTuple):
    """`reads` and `of` are references as above; `place` is where its weights lie, in the layer that
    is so many `back`; `asked`: llama.cpp asks for it by itself."""

    kind: str
    size: Size
    reads: tuple[str, ...]
    of: str | None
    place: Place | None
    back: int
    asked: bool
    over: bool
    kept: bool
    pinned: bool
    looks: bool
    fused: Fused | None
    values: bool


class Section(NamedTuple):
    """`at`: (layer, layers) of the recorded models."""

    tensors: tuple[Tensor, ...]
    at: tuple[tuple[int, int], ...] = ()
    holds: frozenset[str] = frozenset()
    previous: frozenset[str] | None = None
    windowed: bool = False
    inputs: frozenset[str] = frozenset()  # that are read


class Template(NamedTuple):
    """One recorded graph."""

    windowed: bool
    start: str
    inputs: Mapping[str, Size]
    unread: frozenset[str]
    before: Section
    layers: tuple[Section, ...]
    after: tuple[Section, ...]


@cache
def templates(architecture: str, mode: Mode, *, unfused: bool = False) -> tuple[Template, ...]:
    """Empty for an architecture that was not recorded."""
    recorded = f"{mode}, unfused" if unfused else mode
    return tuple(_template(line) for line in _lines().graphs.get((architecture, recorded), ()))


def is_recorded(architecture: str) -> bool:
    """In one mode at least: llama.cpp aborts on PLM with flash attention."""
    return any(name == architecture for name, _ in _lines().graphs)


def stand_in() -> str:
    """The architecture that is taken for one that was not recorded."""
    return _lines().stand_in


class _Lines(NamedTuple):
    stand_in: str
    tensors: list[str]
    graphs: Mapping[tuple[str, str], list[str]]


@cache
def _lines() -> _Lines:
    """All tensors, and lines by architecture and mode, not read yet: a plan wants few of them."""
    found: dict[tuple[str, str], list[str]] = {}
    text = files(__package__).joinpath("graphs.jsonl").read_text(encoding="utf-8")
    head, tensors, *lines = text.splitlines()
    for line in lines:
        match = re.match(r'\{"architecture":"([^"]+)","mode":"([a-z, ]+)"', line)
        assert match is not None
        found.setdefault((match[1], match[2]), []).append(line)
    return _Lines(json.loads(head)["stand_in"], json.loads(tensors)["tensors"], found)


def _template(line: str) -> Template:
    graph = json.loads(line)
    inputs = dict(map(_input, graph["inputs"]))
    sections = [_section(section) for section in graph["sections"]]
    after = tuple(map(_section, graph["after"]))
    before = _section(graph["before"])
    read = frozenset[str]().union(*(one.inputs for one in (before, *sections, *after)))
    return Template(
        windowed=graph["windowed"],
        start=graph.get("start", ""),
        inputs=inputs,
        unread=frozenset(inputs) - read,
        before=before,
        layers=tuple(sections),
        after=after,
    )


def _input(text: str) -> tuple[str, Size]:
    return text, size_of(text.split(":")[1].split("#")[0])


def _section(section: Mapping[str, object]) -> Section:
    def words(key: str) -> frozenset[str]:
        return frozenset(str(section.get(key, "")).split())

    at: Iterable[tuple[int, int]] = section.get("at", ())  # type: ignore[assignment]
    every = _lines().tensors
    tensors = tuple(_tensor(every[number]) for number in _numbers(str(section["tensors"])))
    read = (word for tensor in tensors for word in (*tensor.reads, tensor.of or ""))
    return Section(
        tensors=tensors,
        at=tuple((layer, layers) for layer, layers in at),
        holds=words("holds"),
        previous=words("previous") if "previous" in section else None,
        windowed=bool(section.get("windowed")),
        inputs=frozenset(word[1:] for word in read if word.startswith("@")),
    )


def _numbers(text: str) -> Iterator[int]:
    """`7+3` are 7, 8 and 9."""
    for word in text.split():
        first, _, count = word.partition("+")
        yield from range(int(first), int(first) + int(count or 1))


@cache
def _tensor(text: str) -> Tensor:
    kind, size, *rest = text.split(" ")
    place, back = None, 0
    if rest and rest[-1].startswith("+"):
        mark = rest.pop()
        place, back = _PLACES[mark[1]], int(mark[2:] or 0)
    of = rest.pop()[1:] if rest and rest[-1].startswith("%") else None
    return Tensor(
        kind=kind[0],
        size=size_of(size),
        reads=tuple(rest),
        of=of,
        place=place,
        back=back,
        asked="/" in kind,
        over="~" in kind,
        kept="!" in kind,
        pinned="^" in kind,
        looks="=" in kind,
        fused=next((one for mark, one in _FUSED.items() if mark in kind), None),
        values="|" in kind,
    )


@cache
def size_of(text: str) -> Size:
    """Of `4*T*E+128*S`."""
    products = (product.split("*") for product in text.split("+"))
    return Size(tuple((int(factor), tuple(names)) for factor, *names in products))


class Wanted(NamedTuple):
    """A layer of a model of `layers`, what it holds, and whether it has a window."""

    layer: int
    layers: int
    holds: frozenset[str]
    windowed: bool


def section_for(found: Iterable[Template], wanted: Wanted) -> Section:
    """Of the recorded ones that of the layer which is most like it: in what it holds, and in its
    place among the layers, of which architectures make every second or fourth another."""
    candidates: Iterator[tuple[Section, int, int]] = (
        (section, at, of)
        for template in found
        for section in template.layers
        for at, of in section.at
    )
    return max(candidates, key=lambda one: _likeness(wanted, *one))[0]


def _likeness(wanted: Wanted, section: Section, at: int, of: int) -> tuple[object, ...]:
    return (
        -len(section.holds ^ wanted.holds),
        (at == of - 1) == (wanted.layer == wanted.layers - 1),
        section.windowed == wanted.windowed,
        (at == 0) == (wanted.layer == 0),
        at == wanted.layer,
        of == wanted.layers,
        at % 4 == wanted.layer % 4,
        of,
        at,
    )


def ending_for(found: Iterable[Template], holds: frozenset[str]) -> Section:
    """What is computed after the last layer, which has that."""
    every = (ending for template in found for ending in template.after)
    return min(every, key=lambda one: len((one.previous or holds) ^ holds))
