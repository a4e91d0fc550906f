"""A number for each of some layers, as the user writes it: `0-15:8,16-31:4`."""

import re
from collections.abc import Mapping

from headcount.model.errors import HeadcountError

_RANGE = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?:([0-9]{1,6})", re.ASCII)


def parse_by_layer(text: str) -> dict[int, int] | None:
    """Layer -> its number; None for what is not written so. Raises HeadcountError for layers that
    are reversed or named twice."""
    found: dict[int, int] = {}
    for item in text.split(","):
        match = _RANGE.fullmatch(item.strip())
        if match is None:
            return None
        first, last, number = int(match[1]), int(match[2] or match[1]), int(match[3])
        if last < first or found.keys() & range(first, last + 1):
            raise HeadcountError(f"{text!r}: layers {item.strip()} are reversed or named twice")
        found |= dict.fromkeys(range(first, last + 1), number)
    return found


def by_layer_in_words(numbers: Mapping[int, int]) -> str:
    """What `parse_by_layer` reads: neighbours that have the same number together."""
    runs: list[tuple[int, int, int]] = []
    for index, number in sorted(numbers.items()):
        if runs and runs[-1][1:] == (index - 1, number):
            runs[-1] = (runs[-1][0], index, number)
        else:
            runs.append((index, index, number))
    spelled = (f"{a}:{n}" if a == b else f"{a}-{b}:{n}" for a, b, n in runs)
    return ",".join(spelled)
