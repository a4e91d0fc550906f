"""Reading at a position of a file that several threads read, and writing all of a few bytes."""

import os
from threading import Lock

_SEEKING = Lock()


def read_at(descriptor: int, into: memoryview, position: int) -> int:
    """Bytes from `position` on into a buffer; how many were read, 0 at the end of the file."""
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [into], position)
    with _SEEKING:  # Windows, and macOS before 11
        os.lseek(descriptor, position, os.SEEK_SET)
        data = os.read(descriptor, len(into))
    into[: len(data)] = data
    return len(data)


def write_all(descriptor: int, data: bytes) -> None:
    """All of `data`: the system may take a part at a time. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
