"""Memory that is free goes back to the system, so that what a layer took is there for the next."""

import ctypes
import sys

# What to try where layers that are fitted to a text do not fit.
LESS_MEMORY = "a smaller --calibration-row-tokens (of a text), or a device with more memory"


def give_back() -> None:
    """glibc keeps freed pieces between those in use: without this, peaks grow layer by layer. Other
    C libraries have nothing of the kind, and are left alone."""
    if sys.platform != "linux":
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
