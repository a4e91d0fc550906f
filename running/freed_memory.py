"""Memory that was freed goes back to the system."""

import ctypes
import sys
from collections.abc import Callable
from functools import cache
from typing import Any


def give_back() -> None:
    """Gives what the C library holds of freed blocks back to the system; nothing where it has no
    call for that.

    glibc before 2.38 does not fill the place of an aligned block with the next of that size: a loop
    that makes and frees tensors of some MiB grows by them at every turn, though none is kept.
    """
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Callable[[int], Any] | None:
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
