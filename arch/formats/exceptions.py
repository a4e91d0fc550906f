"""Lists of modules in a config: those that stay as they are, or those that a format is for."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from headcount.model.errors import InvalidConfigError, short

from .patterns import Pattern, expression, glob

_SIGHT = ("vis", "vit", "image", "audio", "tower", "clip", "mm_")


class ModuleList:
    """Names, globs, and regular expressions behind `re:`. A name stands for the modules below it,
    too, and may leave out what stands in front."""

    def __init__(self, entries: Iterable[str]) -> None:
        self.plain: set[str] = set()
        self.patterns: list[Pattern] = []
        self.holds_towers = False
        for entry in dict.fromkeys(entries):
            self.holds_towers |= any(word in entry.lower() for word in _SIGHT)
            if entry.startswith("re:"):
                self.patterns.append(expression(entry.removeprefix("re:")))
            elif "*" in entry or "?" in entry:
                self.patterns.append(glob(entry))
            else:
                self.plain.add(entry.strip("."))

    def holds(self, names: Iterable[str]) -> bool:
        """Whether it has any of the names of one module."""
        return any(self._holds(name) for name in names)

    def _holds(self, name: str) -> bool:
        if not self.plain.isdisjoint(_runs(name)):
            return True
        return any(pattern.matches(name) for pattern in self.patterns)


def _runs(name: str) -> Iterator[str]:
    """All runs of the words between the dots of `name`."""
    words = name.split(".")
    for first in range(len(words)):
        for last in range(first + 1, len(words) + 1):
            yield ".".join(words[first:last])


def names_under(settings: Mapping[str, Any], *keys: str) -> list[str]:
    """What stands under `keys`: a null is no name, and a lone string is one.

    Raises InvalidConfigError for what is no list of names."""
    return [name for key in keys for name in _names(settings, key)]


def _names(settings: Mapping[str, Any], key: str) -> list[str]:
    value = settings.get(key)
    if value is None:
        return []
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidConfigError(
            f"config.json: quantization_config.{key} is {short(value)}; a list of names is expected"
        )
    return names


def entry_of(table: Mapping[str, Any], names: Iterable[str]) -> Any:
    """What `table` says of a module under any of its names, else of the nearest one above it, or
    else under the first glob that it fits."""
    names = tuple(names)
    found = ((len(run), table[run]) for name in names for run in _above(name) if run in table)
    nearest = max(found, key=lambda pair: pair[0], default=None)
    if nearest is not None:
        return nearest[1]
    globs = (key for key in table if "*" in key)
    return next((table[key] for key in globs if any(map(glob(key).matches, names))), None)


def _above(name: str) -> Iterator[str]:
    while name:
        yield name
        name = name.rpartition(".")[0]
