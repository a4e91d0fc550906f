"""What plan/engines/llama_cpp/graphs.jsonl says of a model, of the graphs that llama.cpp made of it
in several starts (llama_graph_worker.py)."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from graph_rows import BYTES, DIMENSIONS, NAME, OPERATION, READS, Rows
from graph_sections import Parts, graph_line
from graph_sizes import Products, factor_cost, gives, sizes_of
from graph_sums import summed

Json = dict[str, Any]
# Starts whose graphs may be others than those of several streams
ALIKE: dict[str, dict[str, Any]] = {"one stream": {"unified": True}, "alone": {"seqs": 1}}
AGAIN = " again"  # a start of the same layers in other sizes
MODES: dict[str, dict[str, Any]] = {
    "flash": {"flash": 1},
    "scores": {"flash": 0},
    "rotated": {"flash": 1, "k": "q8_0", "v": "q8_0"},
}
# Where streams are put together by single operations (plan/engines/llama_cpp/templates.py)
UNFUSED: dict[str, dict[str, Any]] = {
    f"{mode}, unfused": {**settings, "unfused": True} for mode, settings in MODES.items()
}


class Recorded:
    """The answers of one model; `known` are the products that were found for tensors by what they
    are."""

    def __init__(self, answers: Iterable[Json]) -> None:
        self.answers = {one["name"]: one for one in answers if "graph" in one}
        self.graphs = {name: Rows(one["graph"]) for name, one in self.answers.items()}
        self.known: dict[tuple[object, ...], list[str]] = defaultdict(list)
        self.missing: list[str] = []

    def lines(self) -> Iterator[Json]:
        """Of each mode the model of four layers, and of others."""
        for mode in (*MODES, *UNFUSED):
            if f"{mode} base" not in self.answers:
                continue
            names = [n for n in self.answers if n.startswith(f"{mode} ")]
            products = self._of_base(mode, [n for n in names if "layers=" not in n])
            yield self._line(mode, f"{mode} base", products)
            for start in ALIKE:
                name = f"{mode} {start}"
                if name in self.graphs and self._shape(name) != self._shape(f"{mode} base"):
                    yield {**self._line(mode, name, self._of_one(name)), "start": start}
            for name in (n for n in names if "layers=" in n and not n.endswith(AGAIN)):
                yield self._line(mode, name, self._of_one(name))

    def _line(self, mode: str, name: str, products: Mapping[int, str]) -> Json:
        return {"mode": mode, **graph_line(self.answers[name], self.graphs[name], products)}

    def _of_base(self, mode: str, names: list[str]) -> dict[int, str]:
        """Products that hold in each start whose graph has the same shape."""
        base = self.graphs[f"{mode} base"]
        alike = [n for n in names if self._shape(n) == base.shape()]
        alike.sort(key=lambda name: not name.endswith(" base"))
        jobs = [self.answers[name] for name in alike]
        parts, made, sizes, found = self._parts(f"{mode} base"), {}, {}, dict[int, str]()
        for number, entry in enumerate(base.entries):
            layer = parts.layer(number)
            wanted = [self._bytes(name, number) for name in alike]
            key = _key(base, entry.row)
            if layer not in sizes:
                sizes[layer] = [sizes_of(job, layer) for job in jobs]
            product = next((p for p in self.known[key] if gives(p, sizes[layer], wanted)), None)
            if product is None and min(wanted) == 0 < max(wanted):
                others = map(_of_the_rest, found.values())
                product = next((p for p in others if gives(p, sizes[layer], wanted)), None)
            is_own = entry.of is not None and parts.layer(entry.of) == layer
            kind = "own" if entry.kind == "v" and is_own else entry.kind
            for few in {"u": (), "own": (True,)}.get(kind, (True, False)):
                if product is None and (layer, few) not in made:
                    made[layer, few] = Products(jobs, layer, few=few)
                product = product or made[layer, few].product(wanted)
            if product is None and entry.kind in "inls":
                tensors = [self._tensor(name, number) for name in alike]
                product = summed(sizes[layer], tensors) or None
            found[number] = self._settled(base, number, product, found, wanted[0])
            for near in (key, _key(base, entry.row, 1)):
                if found[number] not in self.known[near]:
                    self.known[near].append(found[number])
        return found

    def _shape(self, name: str) -> list[tuple[object, ...]]:
        return self.graphs[name].shape()

    def _parts(self, name: str) -> Parts:
        return Parts(self.graphs[name], self.answers[name]["metadata"]["general.architecture"])

    def _bytes(self, name: str, number: int) -> int:
        graph = self.graphs[name]
        return int(graph.rows[graph.entries[number].row][BYTES])

    def _tensor(self, name: str, number: int) -> tuple[int, list[int]]:
        """Bytes and sides."""
        graph = self.graphs[name]
        row = graph.rows[graph.entries[number].row]
        return int(row[BYTES]), list(row[DIMENSIONS])

    def _settled(
        self, graph: Rows, number: int, product: str | None, found: dict[int, str], size: int
    ) -> str:
        """Of a view that no product gives that of what it looks at; what caches hold counts where
        it is copied alone."""
        entry = graph.entries[number]
        if entry.kind == "u" or (entry.kind == "k" and product is None):
            return "0"
        if product is None and entry.of is not None:
            product = found.get(entry.of)
        if product is None:
            row = graph.rows[entry.row]
            self.missing.append(f"{row[OPERATION]} {row[NAME]} {row[4]}")
            return str(size)
        return product

    def _of_one(self, name: str) -> dict[int, str]:
        """Of a model of other layers: the products that are known, for fewer tokens and for other
        cells, of those that hold when it is asked for again."""
        names = [one for one in (name, f"{name}{AGAIN}") if one in self.graphs]
        names = [one for one in names if self._shape(one) == self._shape(name)]
        graph, parts, sizes = self.graphs[name], self._parts(name), {}
        every = sorted({"4*T*FF", *(p for ps in self.known.values() for p in ps)}, key=_likelier)
        found = dict[int, str]()
        for number, entry in enumerate(graph.entries):
            layer = parts.layer(number)
            if layer not in sizes:
                sizes[layer] = [sizes_of(self.answers[one], layer) for one in names]
            wanted = [self._bytes(one, number) for one in names]
            mine = [p for d in (3, 1) for p in self.known.get(_key(graph, entry.row, d), ())]
            tried = (p for known in (*mine, *every) for p in _variants(known))
            product = next((p for p in tried if gives(p, sizes[layer], wanted)), None)
            found[number] = self._settled(graph, number, product, found, wanted[0])
        return found


def _variants(product: str) -> Iterator[str]:
    yield product
    for was, now in (("T", "O"), ("W", "C"), ("C", "W"), ("T/S", "T")):
        yield re.sub(rf"(?<=\*){was}(?=\*|$)", now, product)


def _likelier(product: str) -> tuple[object, ...]:
    """Of fewer sizes first, and of elements of four bytes."""
    return product.count("*"), factor_cost(int(product.split("*")[0])), product


def _of_the_rest(product: str) -> str:
    """As large for each sequence of which a micro-batch has no tokens."""
    names = {"S": "rest", "tail": "restail"}
    return "*".join(names.get(name, name) for name in product.split("*"))


def _key(graph: Rows, i: int, depth: int = 3) -> tuple[object, ...]:
    """What a tensor is: by its name, and by what it is made of."""
    row = graph.rows[i]
    name = re.sub(r"-\d+|_l\d+|(?<=blk\.)\d+", "", row[NAME])
    own = (row[OPERATION], "" if name.startswith(("node_", " (", "leaf_")) else name)
    if not depth or row[OPERATION] == "NONE":
        return own
    return (*own, *(_key(graph, read, depth - 1) for read in row[READS] if read != i))


def written(lines: Iterable[Json]) -> Iterator[str]:
    """The lines of the file after the first: all tensors, and graphs that have their numbers."""
    numbers: dict[str, int] = {}
    texts = []
    for line in merged(lines):
        for section in (line["before"], *line["after"], *line["sections"]):
            found = [numbers.setdefault(text, len(numbers)) for text in section["tensors"]]
            section["tensors"] = " ".join(_runs(found))
        texts.append(json.dumps(line, separators=(",", ":")))
    yield json.dumps({"tensors": list(numbers)}, separators=(",", ":"))
    yield from texts


def _runs(numbers: list[int]) -> Iterator[str]:
    """Numbers that follow each other as the first and how many there are."""
    at = 0
    while at < len(numbers):
        count = 1
        while at + count < len(numbers) and numbers[at + count] == numbers[at] + count:
            count += 1
        yield f"{numbers[at]}+{count}" if count > 1 else str(numbers[at])
        at += count


def merged(lines: Iterable[Json]) -> Iterator[Json]:
    """One line for each architecture, mode, kind of window and of start, in which what is alike is
    once."""
    found: dict[tuple[str, str, bool, str], Json] = {}
    for line in sorted(lines, key=lambda line: -len(line["sections"])):
        key = (line["architecture"], line["mode"], line["windowed"], line.get("start", ""))
        if key not in found:
            found[key] = {**line, "inputs": [], "sections": [], "after": []}
        into = found[key]
        into["inputs"] += [one for one in line["inputs"] if one not in into["inputs"]]
        into["after"] += [line["after"]] if line["after"] not in into["after"] else []
        for section in line["sections"]:
            _merge(section, into["sections"])
    yield from (found[key] for key in sorted(found))


def _merge(section: Json, into: list[Json]) -> None:
    same = (one for one in into if {**one, "at": 0} == {**section, "at": 0})
    other = next(same, None)
    if other is None:
        into.append({**section, "at": list(section["at"])})
    else:
        other["at"] += [one for one in section["at"] if one not in other["at"]]
