"""Of a tensor's bytes in several starts: which product of sizes they are in all of them."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import combinations_with_replacement
from math import gcd, prod
from typing import Any

from headcount.plan.engines.llama_cpp.sizes import file_sizes, layout_of, start_sizes
from headcount.plan.engines.llama_cpp.slots import Slots
from headcount.plan.engines.llama_cpp.templates import size_of

Json = dict[str, Any]
_START = (
    *("", "T", "O", "S", "C", "W", "R", "T*C", "T*W", "T*T", "T*R", "O*T", "T*S", "C*R", "W*R"),
    *("S*S", "T*T/S", "T/S", "C*T/S", "conv", "tail", "scan", "T64", "N64", "K", "T*K", "C*C"),
    *("T*CR", "T*CL", "PN", "PP", "PP*T", "PC", "PC*T", "PS*T", "KT*T", "rest", "restail"),
    *("slots", "slotstail"),
)
_FIRST = frozenset((*_START[:9], "T*CR", "T*CL"))  # tried alone before the others
_SHORT = ("E", "H", "G", "dk", "dv", "FF", "X", "fe", "used", "V", "rot", "KR", "SH", "N")
_FACTORS = {4: 0.0, 2: 0.5, 8: 0.5, 1: 1.5, 12: 1.5, 16: 1.5}  # the likelier costs less


def factor_cost(factor: int) -> float:
    return _FACTORS.get(factor, 4.0)


def sizes_of(job: Json, layer: int | None) -> dict[str, int]:
    """All that the plan knows of a start, by their names; `window` of the job is that of the
    model's layers."""
    shapes = dict(_shapes(job["tensors"], layer))
    own = file_sizes(job["keys"], shapes, layer)
    run = job["run"]
    seqs = run.get("seqs", 1)
    unified = run.get("unified", False)
    slots = Slots(
        parallel=seqs,
        unified=unified,
        ubatch_size=run.get("ubatch", 512),
        swa_full=run.get("swa_full", False),
    )
    layout = slots.of(run["ctx"] if unified or seqs == 1 else -(-run["ctx"] // seqs), 1)
    layout = layout_of(job["metadata"]["general.architecture"], layout)
    layout = replace(layout, alone=run.get("reserved") == 1)
    tokens = min(run.get("ubatch", 512), run["ctx"])
    outputs = min(tokens, run.get("outputs") or tokens)
    return {**own, **start_sizes(layout, tokens, outputs, job["window"], own)}


def _shapes(
    tensors: Mapping[str, Sequence[int]], layer: int | None
) -> Iterator[tuple[str, tuple[int, ...]]]:
    for name, dims in tensors.items():
        match = re.match(r"(?:enc\.|dec\.)?blk\.(\d+)\.(.*)", name)
        if (int(match[1]) if match else None) == layer:
            yield (match[2] if match else name).removesuffix(".weight"), tuple(reversed(dims))


class Products:
    """The products that sizes of one layer may make, by how they change from start to start."""

    def __init__(self, jobs: Sequence[Json], layer: int | None, *, few: bool) -> None:
        self.few = few  # those that most tensors are
        found = [sizes_of(job, layer) for job in jobs]
        common = [name for name in found[0] if all(name in one for one in found)]
        self.values = {name: [one[name] for one in found] for name in common}
        self.values[""] = [1] * len(jobs)
        self.by_ratio: dict[tuple[int, ...], list[tuple[float, int, str]]] = {}
        for rank, words in enumerate(self._words()):
            self._keep(rank, words)

    def _words(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """What starts make, and with it what the model does."""
        names = set(self.values) - {""}
        short = [name for name in _SHORT if name in names]
        starts = [s for s in _START if all(n in self.values for n in s.split("*"))]
        start_names = {name for start in starts for name in start.split("*")}
        others = sorted(names - set(short) - start_names, key=lambda name: ("." in name, name))
        if self.few:
            starts = [s for s in starts if s in _FIRST]
        widths: list[tuple[str, ...]] = [()]
        widths += [
            w
            for n in ((1, 2) if self.few else (1, 2, 3))
            for w in combinations_with_replacement(short, n)
        ]
        if self.few:
            others = []
        widths += [(o,) for o in others] + [(s, o) for o in others for s in short]
        keys = [o for o in others if not re.search(r"\.\d$", o)]
        widths += list(combinations_with_replacement(keys, 2)) + [(*short[1:2], o, o) for o in keys]
        yield from ((start, width) for width in widths for start in starts)

    def _keep(self, rank: int, words: tuple[str, tuple[str, ...]]) -> None:
        start, width = words
        names = [name for name in (*start.split("*"), *width) if name]
        vector = [prod(one) for one in zip(*(self.values[n] for n in names or [""]), strict=True)]
        common = reduce(gcd, vector)
        if not common:
            return
        ratio = tuple(value // common for value in vector)
        cost = len(names) + sum(2.0 for n in width if re.search(r"\.\d$", n))
        cost += 3 * any(n in ("T64", "N64", "T/S") for n in names)
        self.by_ratio.setdefault(ratio, []).append((cost + rank * 1e-9, common, "*".join(names)))

    def product(self, wanted: Sequence[int]) -> str | None:
        """Of the fewest and likeliest sizes that give `wanted`."""
        common = reduce(gcd, wanted)
        if not common:
            return "0"
        ratio = tuple(value // common for value in wanted)
        found = [
            (cost + factor_cost(common // one), common // one, names)
            for cost, one, names in self.by_ratio.get(ratio, ())
            if common % one == 0
        ]
        if not found:
            return None
        _, factor, names = min(found)
        return f"{factor}*{names}" if names else str(factor)


def gives(size: str, jobs: Iterable[Mapping[str, int]], wanted: Iterable[int]) -> bool:
    """Whether it does, in each start."""
    found = size_of(size)
    try:
        return all(found.of(sizes) == value for sizes, value in zip(jobs, wanted, strict=True))
    except KeyError:
        return False
