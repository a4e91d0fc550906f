"""A graph of llama.cpp cut into what comes before its layers, each layer, and what comes after.

A layer begins with the first tensor that says its number. What is left of the one before is
computed among its own, where llama.cpp fetches a state early.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from graph_rows import FLAGS, IN_PLACE, NAME, OPERATION, PINNED, PLACE, READS, VIEWS, Entry, Rows
from headcount.plan.engines.llama_cpp.sizes import held_of

Json = dict[str, Any]
Part = int | str  # a layer, "before" or "after"
_OF_LAYER = re.compile(r"-(\d+)(?: \(.*)?$")
_WEIGHTS = re.compile(r"(?:enc\.|dec\.)?blk\.(\d+)\.(.*)")
_CACHE = re.compile(r"cache_\w+_l(\d+)")
_OUTSIDE = re.compile(r"(result_|norm$|output|cls)")
_EXPERTS = re.compile(r"\.ffn_(up|down|gate|gate_up)_(ch|)exps")
_INPUTS = ("token_embd", "position_embd", "token_types", "per_layer_token_embd")
_WITH_THE_FIRST = ("per_layer_model_proj", "per_layer_proj_norm", "altup_")


class Parts:
    """Which part each row of a graph belongs to, and the entries of each."""

    def __init__(self, graph: Rows) -> None:
        self.graph, self.rows = graph, graph.rows
        self.of_row = self._of_rows()
        self.entries: dict[Part, list[int]] = defaultdict(list)
        self.place: dict[int, tuple[Part | None, int]] = {}
        inputs = 0
        for number, entry in enumerate(graph.entries):
            if entry.kind == "i":
                self.place[number] = (None, inputs)
                inputs += 1
                continue
            part = self.of_row[self._first_reader(entry) if entry.kind == "l" else entry.row]
            self.place[number] = (part, len(self.entries[part]))
            self.entries[part].append(number)
        self.order = list(self.entries)

    @property
    def layers(self) -> int:
        return 1 + max((part for part in self.order if isinstance(part, int)), default=-1)

    def _first_reader(self, entry: Entry) -> int:
        """A constant belongs to what reads it."""
        return min(self.graph.readers[entry.row], default=entry.row)

    def _of_rows(self) -> list[Part]:
        rows = self.rows
        numbers = [self.layer_of(i) for i in range(len(rows))]
        last = max((i for i, n in enumerate(numbers) if n is not None), default=-1)
        current: Part = "before"
        found: list[Part] = []
        for i, row in enumerate(rows):
            number = numbers[i]
            if row[OPERATION] != "NONE" or row[READS]:
                if i > last and (current == "after" or _OUTSIDE.match(row[NAME])):
                    current = "after"
                elif number is not None and (current == "before" or number > int(current)):
                    current = number
            found.append(current)
        return found

    def layer_of(self, i: int) -> int | None:
        """By the name of a row, by that of the weights or of the cache that it reads."""
        row = self.rows[i]
        if row[OPERATION] == "NONE" and not row[READS]:
            return None
        for pattern, name in ((_OF_LAYER, row[NAME]), *self._read_names(i), (_CACHE, row[NAME])):
            if match := pattern.search(name):
                return int(match[1])
        return None

    def _read_names(self, i: int) -> list[tuple[re.Pattern[str], str]]:
        patterns = {"weights": _WEIGHTS, "cache": _CACHE}
        read = (self.rows[r] for r in self.rows[i][READS])
        return [(patterns[row[PLACE]], row[NAME]) for row in read if row[PLACE] in patterns]

    def back(self, i: int, part: Part) -> int:
        """How many layers before its part the weights or the cache are that a row reads."""
        for pattern, name in self._read_names(i):
            if match := pattern.search(name):
                own = part if isinstance(part, int) else self.layers - 1
                return max(0, own - int(match[1]))
        return 0

    def reference(self, number: int, part: Part, names: list[str]) -> str:
        """How a tensor of `part` calls another."""
        other, at = self.place[number]
        if other is None:
            return f"@{names[at]}"
        if other == part:
            return str(at)
        entry = self.graph.entries[number]
        if entry.of is not None and self.graph.entries[entry.of].kind == "i":
            return self.reference(entry.of, part, names)  # a look at an input, made once for all
        behind = len(self.entries[other]) - at
        far = self.order.index(part) - self.order.index(other)
        if far == 1:
            return f"p{behind}"
        if other in ("before", 0):
            return f"{'b' if other == 'before' else 'z'}{at}"
        return f"q{far}.{behind}"


def graph_line(job: Json, graph: Rows, products: Mapping[int, str]) -> Json:
    """As plan/engines/llama_cpp/templates.py reads it, but `architecture` and `mode`; `products`
    are the sizes of the entries."""
    parts = Parts(graph)
    held = {layer: held_of(_names(job, layer), job["keys"]) for layer in range(parts.layers)}
    names = _input_names(graph, products)
    windows = {f"@{name}" for name in names if "W" in name.split(":")[1].split("#")[0].split("*")}

    def section(part: Part) -> Json:
        texts = [
            _text(parts, number, part, names, products) for number in parts.entries.get(part, ())
        ]
        found: Json = {"tensors": texts}
        if isinstance(part, int):
            found |= {"holds": _words(held[part]), "at": [[part, parts.layers]]}
            found["windowed"] = any(windows & set(text.split(" ")) for text in texts)
        before = part - 1 if isinstance(part, int) else parts.layers - 1
        ends_it = part == "after" or any(re.search(r"\+\w\d", text) for text in texts)
        if before >= 0 and part != "before" and ends_it:
            found["previous"] = _words(held[before])
        return found

    return {
        "windowed": bool(job["keys"].get("attention.sliding_window")),
        "inputs": names,
        "before": section("before"),
        "after": section("after"),
        "sections": [section(part) for part in parts.order if isinstance(part, int)],
    }


def _words(held: frozenset[str]) -> str:
    return " ".join(sorted(held))


def _names(job: Json, layer: int) -> list[str]:
    found = (_WEIGHTS.match(name) for name in job["tensors"])
    return [match[2] for match in found if match and int(match[1]) == layer]


def _input_names(graph: Rows, products: Mapping[int, str]) -> list[str]:
    """With their sizes; those that are alike are numbered."""
    found: list[str] = []
    for number, entry in enumerate(graph.entries):
        if entry.kind == "i":
            name = f"{graph.rows[entry.row][NAME] or 'input'}:{products[number]}"
            count = sum(one.split("#")[0] == name for one in found)
            found.append(f"{name}#{count}" if count else name)
    return found


def _text(
    parts: Parts, number: int, part: Part, names: list[str], products: Mapping[int, str]
) -> str:
    entry = parts.graph.entries[number]
    row = parts.rows[entry.row]
    words = [entry.kind + _flags(row, entry), products.get(number, "0")]
    words += [parts.reference(read, part, names) for read in entry.reads]
    if entry.of is not None:
        words.append(f"%{parts.reference(entry.of, part, names)}")
    mark = _mark(parts, entry)
    if mark:
        back = parts.back(entry.row, part) if mark in "wxc" else 0
        words.append(f"+{mark}{back or ''}")
    return " ".join(words)


def _flags(row: list[Any], entry: Entry) -> str:
    found = "~" if row[OPERATION] in IN_PLACE and entry.kind == "n" else ""
    found += "!" if row[FLAGS] & 2 else ""
    found += "^" if PINNED.match(row[NAME]) else ""
    found += "*" if row[OPERATION] == "FLASH_ATTN_EXT" else ""
    return found + ("=" if entry.kind == "v" and row[OPERATION] in VIEWS else "")


def _mark(parts: Parts, entry: Entry) -> str:
    """Where it is computed, by the first weights that it reads or the cache that it writes
    (ggml_backend_sched_backend_id_from_cur)."""
    row = parts.rows[entry.row]
    if entry.kind == "u" and row[PLACE] == "cache":
        return "c"
    if row[OPERATION] in ("ROPE", "FLASH_ATTN_EXT"):
        return ""
    read = (parts.rows[r] for r in row[READS])
    name = next((r[NAME] for r in read if r[PLACE] == "weights" and not r[READS]), None)
    if name is None:
        return ""
    if _EXPERTS.search(name):
        return "x"
    if _WEIGHTS.match(name):
        return "w"
    if name.startswith(_WITH_THE_FIRST):
        return "f"
    is_embedding = name.startswith(_INPUTS) and row[OPERATION] == "GET_ROWS"
    return "h" if is_embedding else "o"
