"""Versions of engines, and the rules that changed between them."""

import re
from typing import NamedTuple

from headcount.audit.errors import HeadcountError

_NUMBERS = re.compile(r"\d{1,6}(?:\.\d{1,6})*")
# The newest release whose rules were read; `>=0.21` and later ones go by them.
NEWEST = {"vllm": (0, 33), "sglang": (0, 5, 23)}


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
    """The newest known version of `engine`."""
    numbers = NEWEST.get(engine, ())
    return Version(numbers, ".".join(map(str, numbers)))


def parse_version(text: str, engine: str = "vllm") -> Version:
    """`0.11.0rc2`, `v0.9`, `~0.11`; `>=0.21` and `latest` are the newest known.

    Raises HeadcountError where no number stands.
    """
    if text.strip() == "latest" or text.lstrip().startswith(">"):
        return newest(engine)._replace(text=text.strip())
    found = _NUMBERS.search(text)
    if found is None:
        raise HeadcountError(f"engine version {text[:40]!r}: a number such as 0.11.0 is expected")
    return Version(tuple(int(part) for part in found[0].split(".")), text)
