"""A graph of llama.cpp as rows (llama_graph_worker.py), without what needs no memory.

Views of views, what lies in caches and weights, and operations that do no more than write over the
one tensor that they read are left out; the outputs of the experts that are added up one by one are
one entry, whatever their number.
"""

import re
from collections import defaultdict
from math import prod
from typing import Any, NamedTuple

Row = list[Any]  # operation, name, flags, bytes, dimensions, view of, reads, place
OPERATION, NAME, FLAGS, BYTES, DIMENSIONS, OF, READS, PLACE = range(8)
VIEWS = frozenset({"NONE", "RESHAPE", "VIEW", "PERMUTE", "TRANSPOSE"})
# ggml_op_can_inplace of ggml/src/ggml-alloc.c; of GGML_OP_UNARY every function
IN_PLACE = frozenset(
    (
        *("FILL", "SCALE", "DIAG_MASK_ZERO", "DIAG_MASK_INF", "ADD", "ADD_ID", "ADD1", "SUB"),
        *("MUL", "DIV", "SQR", "SQRT", "LOG", "ROPE", "ROPE_BACK", "SILU_BACK", "RMS_NORM"),
        *("RMS_NORM_BACK", "CLAMP", "SOFT_MAX", "SOFT_MAX_BACK", "ABS", "SGN", "NEG", "STEP"),
        *("TANH", "ELU", "RELU", "SIGMOID", "GELU", "GELU_QUICK", "SILU", "HARDSWISH"),
        *("HARDSIGMOID", "EXP", "GELU_ERF", "XIELU", "SOFTPLUS", "EXPM1", "FLOOR", "CEIL", "ROUND"),
        *("TRUNC"),
    )
)
PINNED = re.compile(r"(norm|l_last)-\d+$")  # llama_context::graph_get_cb


class Entry(NamedTuple):
    """`kind`: an input (i), or as in plan/engines/llama_cpp/templates.py; `reads` and `of` are
    entries by their numbers."""

    kind: str
    row: int
    reads: tuple[int, ...]
    of: int | None = None


class Rows:
    """The entries of a graph."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        self.readers: dict[int, list[int]] = defaultdict(list)
        for i, row in enumerate(rows):
            for read in row[READS]:
                self.readers[read].append(i)
        self.looks = {i for i in range(len(rows)) if self._is_read_from_cache(i)}
        outside = {i for i in range(len(rows)) if self._is_outside(i)}
        self.left_out = outside - self.looks
        self.stands_for: dict[int, int] = {}
        self.sums: dict[int, int] = {}
        for i in range(len(rows)):
            self._shorten(i)
        for i in filter(self.is_view, range(len(rows))):
            self.reads(i)
        for i in range(len(rows)):
            self._sum_up(i)
        self.entries = list(self._entries())

    def _is_outside(self, i: int) -> bool:
        return self.rows[i][PLACE] is not None and self.rows[i][OPERATION] in VIEWS

    def _is_read_from_cache(self, i: int) -> bool:
        """Whether something is computed of this look at a cache."""
        rows = self.rows
        return (
            self._is_outside(i)
            and rows[i][PLACE] == "cache"
            and any(
                rows[r][OPERATION] not in VIEWS and not self._writes(r) for r in self.readers[i]
            )
        )

    def _writes(self, i: int) -> bool:
        return self.rows[i][PLACE] is not None or self.rows[i][OF] == -1

    def is_view(self, i: int) -> bool:
        row = self.rows[i]
        is_look = row[OPERATION] in VIEWS and bool(row[READS]) and row[OF] is not None
        return is_look and not self._is_outside(i)

    def reads(self, i: int) -> list[int]:
        """Past views that only another view reads, and past what is left out."""
        found = []
        for read in self.rows[i][READS]:
            while self.is_view(i) and self.is_view(read) and len(self.readers[read]) == 1:
                self.left_out.add(read)
                (read,) = self.rows[read][READS]
            found.append(self._home(read))
        return found

    def _shorten(self, i: int) -> None:
        """Leaves `i` out where it only writes over what it reads: then it needs no room. Weights
        say where it is computed, which then must be where that is."""
        row = self.rows[i]
        if row[OPERATION] not in IN_PLACE or row[OF] is not None or row[FLAGS]:
            return
        first, *others = row[READS]
        source = self.rows[first]
        if self._is_outside(first) or source[OF] is not None or not source[READS]:
            return
        alone = self.readers[first] == [i] and not source[FLAGS]
        same = source[DIMENSIONS] == row[DIMENSIONS] and source[BYTES] == row[BYTES]
        settled = all(map(self._is_weight, others))
        placed = not others or any(map(self._is_weight, source[READS]))
        if alone and same and settled and placed and not PINNED.match(row[NAME]):
            self.stands_for[i] = self._home(first)
            self.left_out.add(i)

    def _is_weight(self, i: int) -> bool:
        return bool(self.rows[i][PLACE] == "weights")

    def _home(self, i: int) -> int:
        """The tensor in whose place `i` is made."""
        return self.stands_for.get(i, i)

    def _sum_up(self, i: int) -> None:
        """The first of the additions of the experts' outputs, which are views of one tensor."""
        if self.rows[i][OPERATION] != "ADD" or i in self.left_out or i in self.sums:
            return
        first, second = self.reads(i)
        if first == second or not all(map(self._is_part, (first, second))):
            return
        of = self.rows[first][OF]
        views, adds = [first, second], [i]
        while len(self.readers[adds[-1]]) == 1:
            (after,) = self.readers[adds[-1]]
            part = [read for read in self.rows[after][READS] if read != adds[-1]]
            if len(part) != 1 or not self._is_part(part[0]) or self.rows[part[0]][OF] != of:
                break
            views.append(part[0])
            adds.append(after)
        size = prod(self.rows[first][DIMENSIONS])
        if len(views) * size == prod(self.rows[of][DIMENSIONS]):
            self.left_out |= {*views, *adds[:-1]}
            self.sums[adds[-1]] = self._home(of)

    def _is_part(self, i: int) -> bool:
        row = self.rows[i]
        return self.is_view(i) and row[OPERATION] == "VIEW" and self.readers[i][1:] == []

    def _entries(self) -> Any:
        numbers: dict[int, int] = {}
        kept = [i for i in range(len(self.rows)) if i not in self.left_out]
        for number, i in enumerate(kept):
            numbers[i] = number
        for i in kept:
            row, kind = self.rows[i], self._kind(i)
            read = [self.sums[i]] if i in self.sums else self.reads(i)
            read = [] if kind == "k" else [r for r in read if kind != "u" or r not in self.looks]
            yield Entry(
                kind=kind,
                row=i,
                reads=tuple(numbers[r] for r in read if r in numbers and r != i),
                of=numbers[self._home(row[OF])] if kind == "v" else None,
            )

    def _kind(self, i: int) -> str:
        row = self.rows[i]
        if row[OPERATION] == "NONE" and not row[READS] and i not in self.looks:
            is_constant = not row[FLAGS] & 1 and row[NAME].startswith("leaf_")
            return "l" if is_constant else "i"
        if i in self.looks:
            return "k"
        if i in self.sums:
            return "s"
        if self._writes(i):
            return "u"
        return "n" if row[OF] is None else "v"

    def shape(self) -> list[tuple[object, ...]]:
        """What two graphs share that differ in sizes alone."""
        return [(e.kind, self.rows[e.row][OPERATION], e.reads, e.of) for e in self.entries]
