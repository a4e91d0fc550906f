"""Versions of engines, and the rules that changed between them."""

import re
from typing import NamedTuple

_NUMBERS = re.compile(r"\d{1,6}(?:\.\d{1,6})*")
# The oldest and newest releases whose rules were read; others go by the nearer one's.
_READ = {"vllm": ((0, 8, 5), (0, 33)), "sglang": ((0, 5), (0, 5, 23))}


class Version(NamedTuple):
    """The release numbers; suffixes (`rc2`, `.dev329`, `+cu129`) do not count."""

    numbers: tuple[int, ...]
    text: str

    def at_least(self, *numbers: int) -> bool:
        """Whether it is `numbers` or later: 0.20 is before 0.20.2."""
        width = max(len(numbers), len(self.numbers))
        return _padded(self.numbers, width) >= _padded(numbers, width)


def _padded(numbers: tuple[int, ...], width: int) -> tuple[int, ...]:
    return numbers + (0,) * (width - len(numbers))


def newest(engine: str) -> Version:
    """The newest version of `engine` whose rules were read; of no number where rules have none."""
    numbers = _READ[engine][1] if engine in _READ else ()
    return Version(numbers, ".".join(map(str, numbers)))


def parse_version(text: str, engine: str = "vllm") -> Version:
    """`0.11.0rc2`, `v0.9`, `~0.11`. `>=0.21`, `latest` and what has no number are the newest."""
    found = None if text.lstrip().startswith(">") else _NUMBERS.search(text)
    if found is None:
        return newest(engine)._replace(text=text.strip())
    return Version(tuple(int(part) for part in found[0].split(".")), text.strip())


def version_note(engine: str, version: Version) -> str | None:
    """A sentence where the rules of another release stand in for those of `version`."""
    if engine not in _READ:
        return None
    oldest, latest = _READ[engine]
    if not version.at_least(*oldest):
        return f"{engine} {version.text} is older than {_text(oldest)}, whose rules are used."
    if version.at_least(*latest) and version.numbers != latest and not _begins(version, latest):
        return f"{engine} {version.text} is newer than {_text(latest)}, whose rules are used."
    if not _NUMBERS.search(version.text):
        return f"{engine} {version.text!r} is no release: the rules of {_text(latest)} are used."
    return None


def _begins(version: Version, numbers: tuple[int, ...]) -> bool:
    return version.numbers[: len(numbers)] == numbers


def _text(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
