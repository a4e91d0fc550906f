"""What an engine's start-up log looks like: one value, which a file beside the engine makes."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module

from ..request import PlanRequest
from .registry import START_LOGS

Setting = int | float | str
# Words of an option, and the fields of a request that it changes.
Alternative = tuple[str, Mapping[str, object]]
NUMBER = r"([0-9][0-9,]{0,30}(?:\.[0-9]{1,12})?|-[0-9]{1,12}\.[0-9]{1,12})"
QUOTED = r"['\"]?([^\s'\",)}\]]{1,300})['\"]?"


@dataclass(kw_only=True, slots=True)
class Log:
    """`figures` are logged values by name, of the rank with the least where several log; `settings`
    what the start was told or found out. Sizes are in GiB as logged. `pools` are GiB by the tokens
    that each keeps, of an engine with several."""

    engine: str
    figures: dict[str, float] = field(default_factory=dict)
    settings: dict[str, Setting] = field(default_factory=dict)
    pools: dict[int, float] = field(default_factory=dict)

    def least(self, name: str, value: float) -> None:
        self.figures[name] = min(value, self.figures.get(name, value))


class LogLine:
    """A line that has `words`, and the pattern of what follows; the words come first, since a plain
    search is much faster than a pattern. `names` are those of its groups, empty for one that says
    nothing."""

    def __init__(self, words: str, pattern: str, *names: str) -> None:
        self.words, self.pattern, self.names = words, re.compile(pattern), names

    def search(self, line: str) -> re.Match[str] | None:
        return self.pattern.search(line) if self.words in line else None


def _nothing(log: Log, *line: str) -> None:
    """For an engine whose tables say everything."""


def _no_others(*said: object) -> Iterator[Alternative]:
    yield from ()


@dataclass(frozen=True, kw_only=True, slots=True)
class StartLog:
    """How to read the log of `engine`, and what may explain a figure that disagrees.

    `signs`: words that only this engine prints. `starts` begin a start, and settings called
    `of_one_start` do not hold for the next. `figures` and `numbers` are lines with values and with
    settings, `versions` those with a version; `settings` maps what the engine calls a setting to
    its name here. A line with words of `no_figures` has none. `read_line` takes what tables cannot
    say, after them, and `finish` the whole log.

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
    settings: Mapping[str, str] = field(default_factory=dict)
    no_figures: tuple[str, ...] = ()
    read_line: Callable[[Log, str], None] = _nothing
    finish: Callable[[Log], None] = _nothing
    other_counts: Callable[[PlanRequest], Iterator[Alternative]] = _no_others
    other_memory: Callable[[frozenset[str]], Iterator[Alternative]] = _no_others


def number(text: str) -> float:
    """What `NUMBER` found."""
    return float(text.replace(",", ""))


def start_logs() -> dict[str, StartLog]:
    """Those of all engines that have one, by engine."""
    found = {name: import_module(f".{file}", __package__).LOG for name, file in START_LOGS.items()}
    assert all(isinstance(log, StartLog) for log in found.values())
    return found
