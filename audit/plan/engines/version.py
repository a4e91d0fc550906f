"""Versions of engines, and the rules that changed between them."""

import re
from typing import NamedTuple

from headcount.audit.errors import HeadcountError

_NUMBERS = re.compile(r"\d+(?:\.\d+)*")


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


def parse_version(text: str) -> Version:
    """`0.11.0rc2`, `v0.9`, `~0.11`. Raises HeadcountError where no number stands."""
    found = _NUMBERS.search(text)
    if found is None:
        raise HeadcountError(f"engine version {text[:40]!r}: a number such as 0.11.0 is expected")
    return Version(tuple(int(part) for part in found[0].split(".")), text)
