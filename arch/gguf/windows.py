"""Which layers of an architecture see a window, and how wide it is.

The numbers are those of `load_swa_pattern` and `n_swa` in each loader of llama.cpp's src/models/.
"""

from dataclasses import dataclass

from .keys import Keys

_WINDOW, _PATTERN = "attention.sliding_window", "attention.sliding_window_pattern"


@dataclass(frozen=True, kw_only=True, slots=True)
class Windows:
    """Every `period`-th layer sees everything, the last of each period or, with `full_first`, the
    first. `default`: the window where the file names none; `always`: the window whatever the file
    says, but 0. `depth`: only a model of so many layers has windows at all."""

    period: int
    full_first: bool = False
    default: int | None = None
    always: int | None = None
    depth: int | None = None


WINDOWS = {
    "afmoe": Windows(period=4),
    "cohere2": Windows(period=4),
    "cohere2moe": Windows(period=4, full_first=True),
    "exaone-moe": Windows(period=4, default=128),
    "exaone4": Windows(period=4, default=4096, depth=64),
    "gemma-embedding": Windows(period=6),
    "gemma2": Windows(period=2, default=4096),
    "gemma3": Windows(period=6),
    "gemma3n": Windows(period=5),
    "gpt-oss": Windows(period=2),
    "laguna": Windows(period=4, full_first=True),
    "llama4": Windows(period=4, default=8192, always=8192),
    "mellum": Windows(period=4),
    "modern-bert": Windows(period=3, full_first=True),
    "muse-glimmer": Windows(period=4),
    "olmo2": Windows(period=4),
    "plamo3": Windows(period=8),
    "smallthinker": Windows(period=4, full_first=True, always=4096),
}
# Every layer that attends has the window of the file.
_ALL = frozenset({"deepseek4", "lfm2"})
# The loader reads the key and drops it ("Phi SWA is currently disabled").
_DROPPED = frozenset({"phi3"})


def windows(keys: Keys, count: int) -> list[int | None]:
    """The window of each of `count` layers. An architecture whose loader has no use for the key has
    none, unless the file itself says which layers have one."""
    row = WINDOWS.get(keys.architecture)
    size = keys.integer(_WINDOW, limit=2**31)
    if row is not None:
        size = row.default if size is None else size and (row.always or size)
        if row.depth not in (None, count):
            size = None
    if not size or keys.architecture in _DROPPED:
        return [None] * count
    flags = keys.flags(_PATTERN, count)
    if flags is None:
        flags = _flags(keys, row, count)
    return [size if flag else None for flag in flags]


def _flags(keys: Keys, row: Windows | None, count: int) -> list[bool]:
    if row is None and keys.integer(_PATTERN) is None:
        return [keys.architecture in _ALL] * count
    period = keys.integer(_PATTERN, row.period if row else None)
    if not period:  # set_swa_pattern(0): every layer has a window
        return [True] * count
    full = 0 if row is not None and row.full_first else period - 1
    return [i % period != full for i in range(count)]
