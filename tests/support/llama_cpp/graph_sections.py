"""A graph of llama.cpp cut into what comes before its layers, each layer, and what comes after.

A tensor belongs to a layer by what it says of itself, or by what it is made of and for, not by when
it is computed: llama.cpp fetches a state before the layer in front of it is done. When that is
follows from what it asks for by itself (ggml_build_forward_expand), which is found here, too.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from graph_rows import FLAGS, IN_PLACE, NAME, OPERATION, PINNED, PLACE, READS, VIEWS, Entry, Rows
from headcount.plan.engines.llama_cpp.sizes import held_of

Json = dict[str, Any]
BEFORE = -1
_OF_LAYER = re.compile(r"-(\d+)(?: \(.*)?$")
_WEIGHTS = re.compile(r"(?:(?:enc\.|dec\.)?blk|posnet|convnext)\.(\d+)\.(.*)")
_CACHE = re.compile(r"cache_\w+_l(\d+)")
_EXPERTS = re.compile(r"\.ffn_(up|down|gate|gate_up)_(ch|)exps")
_INPUTS = ("token_embd", "position_embd", "token_types", "per_layer_token_embd")
_WITH_THE_FIRST = (
    *("token_embd_norm", "per_layer_model_proj", "per_layer_proj_norm", "conv1d", "hrm."),
)
_WITHOUT_A_COPY = "bitnet"  # its logits are computed with the embedding where that lies


class Parts:
    """Which part each entry of a graph belongs to (a layer's number, BEFORE, or as many as there
    are layers: after them), and the entries of each; `asked`: entries that llama.cpp asks for;
    `has_copy`: a tied head is a copy of the embedding."""

    def __init__(self, graph: Rows, architecture: str) -> None:
        self.graph, self.rows = graph, graph.rows
        self.has_copy = architecture != _WITHOUT_A_COPY
        self.readers = _readers(graph.entries)
        self.numbers = self._numbers()
        self.layers = 1 + max((n for n in self.numbers if n is not None), default=-1)
        self.of_entry = self._settled(self._lowest())
        self.entries: dict[int, list[int]] = defaultdict(list)
        self.place: dict[int, tuple[int | None, int]] = {}
        given = [i for i, part in enumerate(self.of_entry) if part is None]
        self.place.update({number: (None, at) for at, number in enumerate(given)})
        # Looks at inputs come first, so that others have the same places with and without them.
        for number in sorted(range(len(self.of_entry)), key=lambda i: not self._is_look(i)):
            part = self.of_entry[number]
            if part is not None:
                self.place[number] = (part, len(self.entries[part]))
                self.entries[part].append(number)
        self.asked = frozenset(_asked(graph.entries))

    def _is_look(self, number: int) -> bool:
        of = self.graph.entries[number].of
        return of is not None and self.graph.entries[of].kind == "i"

    def layer(self, number: int) -> int | None:
        """Of an entry, if it is in one."""
        part = self.of_entry[number]
        return part if part is not None and 0 <= part < self.layers else None

    def _numbers(self) -> list[int | None]:
        """By the names of an entry, of its weights, and of what is done in its place."""
        found = [None if e.kind in "ilk" else self.layer_of(e.row) for e in self.graph.entries]
        at = {entry.row: number for number, entry in enumerate(self.graph.entries)}
        for row, home in self.graph.stands_for.items():
            if home in at and found[at[home]] is None:
                found[at[home]] = self.layer_of(row)
        return found

    def _lowest(self) -> list[int]:
        """The last part that an entry reads of, or that it is in by its names."""
        found: list[int] = []
        for entry, number in zip(self.graph.entries, self.numbers, strict=True):
            read = [found[r] for r in entry.reads]
            found.append(max([BEFORE if number is None else number, *read]))
        return found

    def _settled(self, lowest: list[int]) -> list[int | None]:
        """What has no name belongs to what it is for, if that is one part; but to the part that it
        is made of if it brings several of its tensors together."""
        entries = self.graph.entries
        first = next((i for i, n in enumerate(self.numbers) if n is not None), len(entries))
        found: list[int | None] = [None] * len(entries)
        for i in reversed(range(len(entries))):
            entry, low = entries[i], lowest[i]
            wanted = sorted({p for r in self.readers[i] if (p := found[r]) is not None})
            made_of = [r for r in entry.reads if lowest[r] == low and entries[r].kind not in "ilk"]
            if entry.kind == "i":
                continue
            if entry.kind in "lk":
                found[i] = wanted[0] if wanted else BEFORE
            elif self.numbers[i] is not None or (wanted and wanted[0] == low):
                found[i] = low
            elif not wanted:
                found[i] = low if low == BEFORE or entry.kind == "u" else self.layers
            elif low == BEFORE:
                found[i] = BEFORE if wanted[1:] or i < first else wanted[0]
            else:
                found[i] = low if made_of[1:] else wanted[0]
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

    def back(self, i: int, part: int) -> int:
        """How many layers before its part the weights or the cache are that a row reads."""
        for pattern, name in (*self._read_names(i), (_CACHE, self.rows[i][NAME])):
            if match := pattern.search(name):
                return max(0, min(part, self.layers - 1) - int(match[1]))
        return 0

    def reference(self, number: int, part: int, names: list[str]) -> str:
        """How a tensor of `part` calls another."""
        other, at = self.place[number]
        if other is None:
            return f"@{names[at]}"
        if other == part:
            return str(at)
        behind, far = len(self.entries[other]) - at, part - other
        if far == 1:
            return f"p{behind}"
        if other in (BEFORE, 0):
            return f"{'b' if other == BEFORE else 'z'}{at}"
        return f"q{far}.{behind}"


def _readers(entries: Sequence[Entry]) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in entries]
    for number, entry in enumerate(entries):
        for read in entry.reads:
            found[read].append(number)
    return found


def _asked(entries: Sequence[Entry]) -> list[int]:
    """Those with which ggml_build_forward_expand gives this order: it puts what a tensor reads
    before it, one after the other, unless it is there. Each brings as much as it can."""
    reads = [[r for r in e.reads if entries[r].kind not in "il"] for e in entries]
    runs: list[tuple[int, int]] = []  # of each the first entry, and the one that was asked for
    made_of: list[int] = []  # bits
    for number, entry in enumerate(entries):
        bits = 1 << number
        for read in reads[number]:
            bits |= made_of[read]
        made_of.append(bits)
        if entry.kind in "il":
            continue
        strangers = ~made_of[number] & ((1 << number) - 1)
        least = strangers.bit_length()
        begins = (k for k, (begin, _) in enumerate(runs) if begin >= least)
        found = next((k for k in begins if _brings(reads, number, runs[k][0])), len(runs))
        runs[found:] = [(runs[found][0] if found < len(runs) else number, number)]
    return [asked for _, asked in runs]


def _brings(reads: Sequence[Sequence[int]], number: int, begin: int) -> bool:
    """Whether an entry puts before it those from `begin` on, in their order, where those before
    that are there."""
    path, expected = [(number, iter(reads[number]))], begin
    while path:
        current, sources = path[-1]
        source = next((one for one in sources if one >= expected), None)
        if source is not None:
            path.append((source, iter(reads[source])))
        elif current != expected:
            return False
        else:
            path.pop()
            expected += 1
    return True


def graph_line(job: Json, graph: Rows, products: Mapping[int, str]) -> Json:
    """As plan/engines/llama_cpp/templates.py reads it, but `architecture` and `mode`; `products`
    are the sizes of the entries."""
    parts = Parts(graph, job["metadata"]["general.architecture"])
    held = {layer: held_of(_names(job, layer), job["keys"]) for layer in range(parts.layers)}
    names = _input_names(graph, products)
    windows = {f"@{name}" for name in names if "W" in name.split(":")[1].split("#")[0].split("*")}

    def section(part: int) -> Json:
        texts = [
            _text(parts, number, part, names, products) for number in parts.entries.get(part, ())
        ]
        found: Json = {"tensors": texts}
        if part in held:
            found |= {"holds": _words(held[part]), "at": [[part, parts.layers]]}
            found["windowed"] = any(windows & set(text.split(" ")) for text in texts)
        if part == parts.layers:
            found["previous"] = _words(held[part - 1])
        return found

    return {
        "windowed": job["window"] is not None,
        "inputs": names,
        "before": section(BEFORE),
        "after": section(parts.layers),
        "sections": [section(part) for part in range(parts.layers)],
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
    parts: Parts, number: int, part: int, names: list[str], products: Mapping[int, str]
) -> str:
    entry = parts.graph.entries[number]
    row = parts.rows[entry.row]
    asked = "/" if number in parts.asked else ""
    words = [entry.kind + asked + _flags(row, entry), products.get(number, "0")]
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
    found += "|" if entry.kind == "k" and row[NAME].startswith("cache_v") else ""
    found += "^" if PINNED.match(row[NAME]) else ""
    found += "*" if row[OPERATION] == "FLASH_ATTN_EXT" else ""
    found += "&" if row[OPERATION] == "DSV4_HC_POST" else ""
    return found + ("=" if entry.kind == "v" and row[OPERATION] in VIEWS else "")


def _mark(parts: Parts, entry: Entry) -> str:
    """Where it is computed, by the first weights that it reads or the cache that it writes
    (ggml_backend_sched_backend_id_from_cur)."""
    row = parts.rows[entry.row]
    if entry.kind in "uk" and row[PLACE] == "cache":
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
    is_looked_up = row[OPERATION] == "GET_ROWS" or not parts.has_copy
    return "h" if name.startswith(_INPUTS) and is_looked_up else "o"
