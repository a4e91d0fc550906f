"""What an engine's start-up log looks like: one value, which a file beside the engine makes."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, NamedTuple

from ..request import PlanRequest
from .registry import START_LOGS

Setting = int | float | str
# Words of an option, and the fields of a request that it changes.
Alternative = tuple[str, Mapping[str, object]]
NUMBER = r"([0-9][0-9,]{0,30}(?:\.[0-9]{1,12})?|-[0-9]{1,12}(?:\.[0-9]{1,12})?)"
SIZE = r"(-?[0-9][0-9,]{0,30}(?:\.[0-9]{1,12})? ?(?:[KMGT]i?B|B\b|bytes))"
QUOTED = r"['\"]?([^\s'\",)}\]]{1,300})['\"]?"
# What a shell's word looks like: a path may hold brackets.
WORD = r"['\"]?([^\s'\",;]{1,300})['\"]?"
# Figures that can be held against a plan.
TELLING = (
    *("available_gib", "kv_tokens", "num_blocks", "concurrency", "weights_gib", "kv_gib"),
    "token_bytes",
)
_UNITS = {"B": 1, "bytes": 1, **{f"{k}B": 1000**n for n, k in enumerate("KMGT", 1)}}
_UNITS |= {f"{k}iB": 1024**n for n, k in enumerate("KMGT", 1)}
_SIZED = re.compile(r"(-?[0-9.,]+) ?([KMGT]i?B|B|bytes)")


class Rank(NamedTuple):
    """Which process logged a line: its pipeline stage, or its place among all ranks; None where the
    line does not say."""

    stage: int | None = None
    place: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """What a start died of, in words of `kind`, with the numbers that its line has: sizes in GiB.
    `reached` are the figures that had been logged by then, which tell how far it had come."""

    kind: str
    values: Mapping[str, float]
    reached: frozenset[str]


@dataclass(kw_only=True, slots=True)
class Log:
    """`figures` are logged values by name, of the rank with the least where several log; `ranks`
    those of each rank; `settings` what the start was told or found out, `trust` how far each is to
    be believed. Sizes are in GiB as logged. `pools` are GiB by the tokens that each keeps, of an
    engine with several; `steps` how far a logged size may be off by rounding, where that is not
    0.005. `failures` by kind. `names` are what the model is called, the likeliest first. `tellers`
    are the engines that logged figures. `metadata` are key-values of a model's file, and sizes made
    of them, by the names that are printed. `fresh` are the settings, and `fresh_names` the names,
    that were said since the last figure: of the next start, if one begins. `earlier` is the start
    before this one."""

    engine: str
    figures: dict[str, float] = field(default_factory=dict)
    ranks: dict[Rank, dict[str, float]] = field(default_factory=dict)
    settings: dict[str, Setting] = field(default_factory=dict)
    trust: dict[str, int] = field(default_factory=dict)
    pools: dict[int, float] = field(default_factory=dict)
    steps: dict[str, float] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    tellers: set[str] = field(default_factory=set)
    metadata: dict[str, Any] = field(default_factory=dict)
    fresh: set[str] = field(default_factory=set)
    fresh_names: list[str] = field(default_factory=list)
    earlier: "Log | None" = None

    def tell(self, engine: str) -> None:
        """A line of `engine` had a figure."""
        self.tellers.add(engine)
        self.fresh.clear()
        self.fresh_names.clear()

    def least(self, name: str, value: float, rank: Rank | None = None) -> None:
        self.figures[name] = min(value, self.figures.get(name, value))
        if rank is not None:
            own = self.ranks.setdefault(rank, {})
            own[name] = min(value, own.get(name, value))

    def add(self, name: str, value: float) -> None:
        """Of a size that is logged in parts."""
        self.figures[name] = self.figures.get(name, 0.0) + value

    def say(self, name: str, value: Setting, trust: int = 1) -> None:
        """Unless something more trustworthy has said otherwise."""
        if trust >= self.trust.get(name, 0):
            self.settings[name], self.trust[name] = value, trust
            self.fresh.add(name)

    def call(self, name: str) -> None:
        """The model has this name, too."""
        for names in (self.names, self.fresh_names):
            if name not in names:
                names.append(name)

    @property
    def is_telling(self) -> bool:
        """Whether it says something of memory, or what its start died of."""
        return bool(self.failures) or any(name in self.figures for name in TELLING)

    def begin(self) -> None:
        """A start: what was said of the one before is put by, but for what was said since its last
        figure, such as the arguments of this one."""
        if self.is_telling:
            self.earlier = replace(self)
            fresh = self.fresh
            self.settings = {n: value for n, value in self.settings.items() if n in fresh}
            self.trust = {n: value for n, value in self.trust.items() if n in fresh}
            self.names, self.tellers = list(self.fresh_names), set()
        for name in _OF_MEMORY:
            setattr(self, name, {})

    def end(self) -> None:
        """Of a start that said nothing, the one before counts, as of parts that were pasted in any
        order; what a model is called, and on what it ran, may be said of the first start alone."""
        before = self.earlier
        if before is None:
            return
        if not self.is_telling:
            for name in (*_OF_MEMORY, "settings", "trust"):
                setattr(self, name, {**getattr(before, name), **getattr(self, name)})
            self.tellers, self.names = before.tellers, [*self.names, *before.names]
        elif self.tellers == before.tellers:
            lasting = {n: before.settings[n] for n in _LASTING if n in before.settings}
            if not self.names and "model" not in self.settings:
                self.names = before.names
            self.settings = {**lasting, **self.settings}

    def fail(self, kind: str, **values: float) -> None:
        """Of ranks that fail alike the first counts, with what others add."""
        known = self.failures.get(kind)
        self.failures[kind] = Failure(
            kind=kind,
            values={**values, **known.values} if known else values,
            reached=known.reached if known else frozenset(self.figures),
        )


_OF_MEMORY = ("figures", "ranks", "pools", "steps", "failures", "metadata")
_LASTING = ("model", "version", "device_name")


class LogLine:
    """A line that has `words`, and the pattern of what it says; the words come first, since a plain
    search is much faster than a pattern. `names` are those of its groups, empty for one that says
    nothing. A number without a unit is multiplied by `scale`."""

    def __init__(self, words: str, pattern: str, *names: str, scale: float = 1.0) -> None:
        self.words, self.pattern, self.names = words, re.compile(pattern), names
        self.scale = scale

    @property
    def is_telling(self) -> bool:
        """Whether it is one of the figures that can be held against a plan."""
        return any(name in TELLING for name in self.names)

    def search(self, line: str) -> re.Match[str] | None:
        return self.pattern.search(line) if self.words in line else None

    def values(self, match: re.Match[str]) -> dict[str, float]:
        """Of the groups that are there."""
        found = zip(self.names, match.groups(), strict=True)
        return {name: quantity(text) * self.scale for name, text in found if name and text}


# The name that Python's engines serve a model by.
SERVED_AS = LogLine(
    "served_model_name", r"served_model_name['\"]?(?:=|: )\[?['\"]([^'\",\]]{1,200})"
)


class FailureLine(NamedTuple):
    """A line that says what a start died of. `kind` is one of those that plan/reconcile explains:

    `request`    the cache of a request of `context` tokens is `needed`, `available` is less
    `tokens`     the same in tokens: `context` of them, of which `tokens` fit
    `cache`      nothing is left for the cache
    `memory`     `tried` more than was `free` of `capacity`; `used` is the process's own
    `occupied`   `free` of `total` at the start, and `requested` is more
    `sampler`    the sampler's warm-up for `sequences`
    `weights`    the weights do not fit
    `unbalanced` ranks have different memory free: the `least` of them
    `buffer`     `tried` for weights, a cache or a step, on the device of that number
    `compute`    that was the buffer of a step
    `cells`      that was the cache
    `tensors`    those were weights
    `host`       `needed` of the host's memory, of which `available` is free
    """

    kind: str
    line: LogLine


class OwnAccount(NamedTuple):
    """What is left for the cache by a log's own figures, in GiB: so many `addends`, each
    rounded."""

    gib: float
    addends: int
    words: str


def _no_account(log: Log, request: PlanRequest) -> OwnAccount | None:
    return None


def _no_others(*said: object) -> Iterator[Alternative]:
    yield from ()


@dataclass(frozen=True, kw_only=True, slots=True)
class StartLog:
    """How to read the log of `engine`, and what may explain a figure that disagrees.

    `signs`: words that only this engine prints. `starts` begin a start, and settings called
    `of_one_start` do not hold for the next. `figures` and `numbers` are lines with values and with
    settings, `versions` those with a version, the most trustworthy first; `names` those with the
    model's name; `failures` what a start dies of. `settings` maps what the engine calls a setting
    to its name here; `phases` are words of a traceback and how far the start had come: `weights`,
    `profile`, `graphs` or `step`; lines with words of `told` say what the start was told. A line
    with words of `no_figures` has none, and one with `no_settings` only talks of settings. Once a
    line of `serves` is there the start has come through whatever went wrong. `others` are words,
    and what reads a line that has them; `finish` takes the whole log.

    `context_option` is the flag of the longest context. `own_account` reckons what is left from
    what the log says was taken, if it says all; `terms` are figures, and the keys of the terms of a
    budget that they stand for.

    `other_counts` are the changes of a request with which tokens and blocks may agree, the
    likeliest first, after those that any engine has; `other_memory` those with which the memory
    may, but for settings that the log says. `looked_for` names the figures for people.
    """

    engine: str
    looked_for: str
    signs: tuple[str, ...] = ()
    starts: tuple[str, ...] = ()
    of_one_start: tuple[str, ...] = ()
    figures: tuple[LogLine, ...] = ()
    numbers: tuple[LogLine, ...] = ()
    versions: tuple[LogLine, ...] = ()
    names: tuple[LogLine, ...] = ()
    failures: tuple[FailureLine, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    phases: tuple[tuple[str, str], ...] = ()
    told: tuple[str, ...] = ()
    no_figures: tuple[str, ...] = ()
    no_settings: tuple[str, ...] = ()
    serves: tuple[str, ...] = ()
    others: tuple[tuple[str, Callable[[Log, str], None]], ...] = ()
    finish: Callable[[Log], None] = lambda log: None
    context_option: str = ""
    own_account: Callable[[Log, PlanRequest], OwnAccount | None] = _no_account
    terms: tuple[tuple[str, str], ...] = ()
    other_counts: Callable[[PlanRequest], Iterator[Alternative]] = _no_others
    other_memory: Callable[[frozenset[str]], Iterator[Alternative]] = _no_others


def number(text: str) -> float:
    """What `NUMBER` found."""
    return float(text.replace(",", ""))


def quantity(text: str) -> float:
    """What `NUMBER` or `SIZE` found, a size in GiB."""
    sized = _SIZED.fullmatch(text.strip())
    return number(sized[1]) * _UNITS[sized[2]] / 2**30 if sized else number(text)


def start_logs() -> dict[str, StartLog]:
    """Those of all engines that have one, by engine."""
    found = {name: import_module(f".{file}", __package__).LOG for name, file in START_LOGS.items()}
    assert all(isinstance(log, StartLog) for log in found.values())
    return found
