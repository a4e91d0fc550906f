"""Patterns of module names in a config: regular expressions and globs, in linear time.

A config is not to be trusted, and Python's `re` takes exponential time on some patterns. What
lists of modules use is a small language: characters, classes, `.`, `* + ?` behind one of these,
alternatives in groups, anchors. Anything else is refused by name.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from string import ascii_letters, digits
from typing import NamedTuple

from headcount.model import limits
from headcount.model.errors import UnsupportedModelError, short

_WORD = frozenset(ascii_letters + digits + "_")
_CLASSES = {"d": frozenset(digits), "w": _WORD}


class _Item(NamedTuple):
    """One character of `chars` (None: any), or with `many` any number of them, `least` at least."""

    chars: frozenset[str] | None
    least: int = 1
    many: bool = False


_Way = tuple[_Item, ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """`ways` are the alternatives, each a run of items from the beginning of a name on. `open`: a
    name may go on behind it, as for `re.match`. `literals` must all stand in a name."""

    ways: tuple[_Way, ...]
    open: bool
    literals: tuple[str, ...]

    def matches(self, name: str) -> bool:
        return all(part in name for part in self.literals) and any(
            _fits(way, name, self.open) for way in self.ways
        )


def _fits(way: _Way, name: str, is_open: bool) -> bool:
    """Bit i of `at`: the items so far fit the first i characters."""
    end = 1 << len(name)
    everywhere, at = 2 * end - 1, 1
    for item in way:
        mask = _mask(item.chars, name)
        once = (at & mask) << 1
        if not item.many:
            at = once if item.least else at | once
        elif item.chars is None:
            first = once if item.least else at
            at = everywhere & ~((first & -first) - 1) if first else 0
        else:
            at = _spread(once if item.least else at | once, mask)
        if not at:
            return False
    return True if is_open else bool(at & end)


def _spread(at: int, mask: int) -> int:
    """From every place on through all characters that follow in `mask`."""
    while True:
        further = at | (at & mask) << 1
        if further == at:
            return at
        at = further


def _mask(chars: frozenset[str] | None, name: str) -> int:
    if chars is None:
        return (1 << len(name)) - 1
    return sum(1 << i for i, char in enumerate(name) if char in chars)


@lru_cache(maxsize=4096)
def expression(text: str) -> Pattern:
    """A regular expression, held against the beginning of a name. Raises UnsupportedModelError
    for one that is not read here."""
    reader = _Reader(text)
    ways = reader.ways()
    if reader.rest:
        raise reader.refused()
    closed = [way for way in ways if way and way[-1] is _END]
    if closed and len(closed) != len(ways):
        raise reader.refused()
    bare = tuple(tuple(item for item in way if item is not _END) for way in ways)
    return Pattern(bare, not closed, _literals(bare))


@lru_cache(maxsize=65536)
def glob(text: str) -> Pattern:
    """`*` and `?` as in file names, held against a whole name or that of a module above it."""
    _check_length(text)
    kinds = {"*": _Item(None, 0, True), "?": _Item(None)}
    way = tuple(kinds.get(char) or _Item(frozenset(char)) for char in text)
    below = (*way, _Item(frozenset(".")), _Item(None, 0, True))
    return Pattern((way, below), False, _literals((way,)))


def _literals(ways: tuple[_Way, ...]) -> tuple[str, ...]:
    """The runs of plain characters in a pattern of one way."""
    if len(ways) != 1:
        return ()
    text = "".join(
        next(iter(item.chars))
        if item.chars is not None and len(item.chars) == 1 and item.least and not item.many
        else "\0"
        for item in ways[0]
    )
    return tuple(part for part in text.split("\0") if part)


def _check_length(text: str) -> None:
    if len(text) > limits.PATTERN_CHARACTERS.most:
        raise _beyond(limits.PATTERN_CHARACTERS, text, len(text))


def _beyond(limit: limits.Limit, text: str, found: int) -> UnsupportedModelError:
    return UnsupportedModelError(limit.refusal(f"config.json: the pattern {short(text)}", found))


_END = _Item(frozenset("\n"))


class _Reader:
    """Reads a regular expression from the left; `rest` is what is still to be read."""

    def __init__(self, text: str) -> None:
        _check_length(text)
        self.text = text
        self.rest = text.removeprefix("^")
        self.depth = 0

    def refused(self) -> UnsupportedModelError:
        return UnsupportedModelError(
            f"config.json: the pattern {short(self.text)} of modules in its quantisation is not"
            " understood: characters, classes, * + ? and alternatives are"
        )

    def ways(self) -> list[_Way]:
        """The alternatives up to the end, or to the bracket that closes them."""
        found: list[_Way] = []
        while True:
            found += self._run()
            self._check_ways(found)
            if not self.rest.startswith("|"):
                return found
            self.rest = self.rest[1:]

    def _run(self) -> list[_Way]:
        ways: list[_Way] = [()]
        while self.rest and self.rest[0] not in "|)":
            more = list(self._piece())
            ways = [first + second for first, second in product(ways, more)]
            self._check_ways(ways)
        return ways

    def _check_ways(self, found: list[_Way]) -> None:
        if len(found) > limits.PATTERN_WAYS.most:
            raise _beyond(limits.PATTERN_WAYS, self.text, len(found))

    def _piece(self) -> Iterator[_Way]:
        if self.rest.startswith("("):
            yield from self._group()
            return
        if self.rest == "$" or self.rest.startswith(("$|", "$)")):
            self.rest = self.rest[1:]
            yield (_END,)
            return
        chars = self._chars()
        sign = self.rest[:1]
        if sign and sign in "*+?":
            self.rest = self.rest[1:].removeprefix("?")  # greedy or not: the same names
            yield (_Item(chars, int(sign == "+"), sign != "?"),)
        elif sign == "{":
            raise self.refused()
        else:
            yield (_Item(chars),)

    def _group(self) -> Iterator[_Way]:
        self.rest = self.rest[1:].removeprefix("?:")
        self.depth += 1
        if self.depth > limits.PATTERN_DEPTH.most:
            raise _beyond(limits.PATTERN_DEPTH, self.text, self.depth)
        if self.rest.startswith("?"):
            raise self.refused()
        inner = self.ways()
        self.depth -= 1
        if not self.rest.startswith(")"):
            raise self.refused()
        self.rest = self.rest[1:]
        if self.rest.startswith(("*", "+", "{")):
            raise self.refused()
        yield from inner
        if self.rest.startswith("?"):
            self.rest = self.rest[1:]
            yield ()

    def _chars(self) -> frozenset[str] | None:
        char, self.rest = self.rest[0], self.rest[1:]
        if char == ".":
            return None
        if char == "[":
            return self._class()
        if char == "\\":
            char, self.rest = self.rest[:1], self.rest[1:]
            if not char or (char.isalnum() and char not in _CLASSES):
                raise self.refused()
            return _CLASSES.get(char) or frozenset(char)
        if char in "*+?{}$^":
            raise self.refused()
        return frozenset(char)

    def _class(self) -> frozenset[str]:
        inside, closed, self.rest = self.rest.partition("]")
        if not closed or not inside or inside.startswith("^") or "\\" in inside:
            raise self.refused()
        chars: set[str] = set()
        while inside:
            if len(inside) > 2 and inside[1] == "-":
                first, last = ord(inside[0]), min(ord(inside[2]), 0x7F)
                chars |= {chr(code) for code in range(first, last + 1)}
                inside = inside[3:]
            else:
                chars.add(inside[0])
                inside = inside[1:]
        return frozenset(chars)
