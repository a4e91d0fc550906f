"""Versions of engines, and which of them had their rules read."""

import re
from typing import NamedTuple

_NUMBERS = re.compile(r"\d{1,6}(?:\.\d{1,6})*")


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


class Releases(NamedTuple):
    """The oldest and the newest release whose rules were read: others go by the nearer one's. Both
    are empty where rules have no number."""

    oldest: tuple[int, ...] = ()
    newest: tuple[int, ...] = ()

    def latest(self) -> Version:
        """The newest version whose rules were read."""
        return Version(self.newest, text_of(self.newest))

    def parse(self, text: str) -> Version:
        """`0.11.0rc2`, `v0.9`, `~0.11`. `>=0.21`, `latest` and what has no number are the
        newest."""
        found = None if text.lstrip().startswith(">") else _NUMBERS.search(text)
        if found is None:
            return self.latest()._replace(text=text.strip())
        return Version(tuple(int(part) for part in found[0].split(".")), text.strip())

    def note(self, engine: str, version: Version) -> str | None:
        """A sentence where the rules of another release stand in for those of `version`."""
        if not self.newest:
            return None
        name, numbers = f"{engine} {version.text}", version.numbers
        if not version.at_least(*self.oldest):
            return f"{name} is older than {text_of(self.oldest)}, whose rules are used."
        begins = numbers[: len(self.newest)] == self.newest
        if version.at_least(*self.newest) and not begins:
            return f"{name} is newer than {text_of(self.newest)}, whose rules are used."
        if not _NUMBERS.search(version.text):
            return (
                f"{engine} {version.text!r} is no release: the rules of {text_of(self.newest)} are"
                " used."
            )
        return None


def text_of(numbers: tuple[int, ...]) -> str:
    """`0.11.0`."""
    return ".".join(map(str, numbers))
