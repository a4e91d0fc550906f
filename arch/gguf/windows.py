"""Which layers of an architecture see a window, and how wide it is.

The numbers are those of `load_swa_pattern` and `n_swa` in each loader of llama.cpp's src/models/.
"""

from .form import Gguf
from .keys import Keys

_WINDOW, _PATTERN = "attention.sliding_window", "attention.sliding_window_pattern"


def windows(form: Gguf, keys: Keys, count: int) -> list[int | None]:
    """The window of each of `count` layers. An architecture whose loader has no use for the key has
    none, unless the file itself says which layers have one."""
    known = form.windows
    size = keys.integer(_WINDOW, limit=2**31)
    if known is not None:
        size = known.default if size is None else size and (known.always or size)
        if known.depth not in (None, count):
            size = None
    if not size or form.slides == "dropped":
        return [None] * count
    flags = keys.flags(_PATTERN, count)
    if flags is None:
        flags = _flags(form, keys, count)
    return [size if flag else None for flag in flags]


def _flags(form: Gguf, keys: Keys, count: int) -> list[bool]:
    known = form.windows
    if known is None and keys.integer(_PATTERN) is None:
        return [form.slides == "all"] * count
    period = keys.integer(_PATTERN, known.period if known else None)
    if not period:  # set_swa_pattern(0): every layer has a window
        return [True] * count
    full = 0 if known is not None and known.full_first else period - 1
    return [i % period != full for i in range(count)]
