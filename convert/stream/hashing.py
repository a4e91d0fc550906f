"""Digests of files: of finished ones, and of one that is being written, without waiting for it.

They tell whether a file is still what was written, on a damaged disk or after an edit; they are no
signature. XXH3 takes a small part of the time of a copy, where SHA-256 takes twice as long as one.
"""

import errno
import os
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

import xxhash

from headcount.sources.identity import FileIdentity, check_identity
from headcount.sources.json_file import open_regular

from .descriptors import read_at
from .os_failures import reading

_BLOCK = 2**18  # stays in the processor's cache between reading and hashing
# So much is handed to the disk at a time.
_WRITE_BACK = 16 * 2**20


def digest_of(path: Path, identity: FileIdentity | None = None) -> str:
    """Hex digits of the content of a regular file. Raises HeadcountError, SourceChangedError unless
    it has that `identity`, if one is given."""
    descriptor = open_regular(path)
    try:
        if identity is not None:
            check_identity(path, FileIdentity.of(descriptor), identity)
        digester, block, position = Digester(), memoryview(bytearray(_BLOCK)), 0
        with reading(path):
            while count := read_at(descriptor, block, position):
                digester.update(block[:count])
                position += count
    finally:
        os.close(descriptor)
    return digester.whole()


def digest_of_bytes(content: bytes | memoryview) -> str:
    """Hex digits of what a file will hold, or a tensor."""
    return xxhash.xxh3_128(content).hexdigest()


class Digester:
    """The digest of bytes that come piece by piece, and those of their parts, `sizes` long."""

    def __init__(self, sizes: Iterable[int] = ()) -> None:
        self._whole, self._part = xxhash.xxh3_128(), xxhash.xxh3_128()
        self._left = deque(sizes)
        self._parts: list[str] = []

    def update(self, data: memoryview) -> None:
        """The next bytes."""
        self._whole.update(data)
        while self._left and (data or not self._left[0]):
            piece = data[: self._left[0]]
            self._part.update(piece)
            self._left[0] -= len(piece)
            data = data[len(piece) :]
            if not self._left[0]:
                self._end_part()

    def _end_part(self) -> None:
        self._left.popleft()
        self._parts.append(self._part.hexdigest())
        self._part.reset()

    def whole(self) -> str:
        """Hex digits of all that came."""
        return self._whole.hexdigest()

    def parts(self) -> tuple[str, ...]:
        """Hex digits of each part that is complete."""
        while self._left and not self._left[0]:
            self._end_part()
        return tuple(self._parts)


class Follower:
    """Reads a growing file behind its writer, in a thread: the digest is ready when the file is,
    and the disk is busy before the fsync that waits for it. It must be finished or abandoned."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._ends: SimpleQueue[int | None] = SimpleQueue()
        self._digester = Digester()
        self._error: Exception | None = None
        self._stopped = False
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def divide(self, sizes: Iterable[int]) -> None:
        """What will be written has parts of these sizes: said before any is."""
        self._digester = Digester(sizes)

    def grown(self, end: int) -> None:
        """The first `end` bytes are written."""
        self._ends.put(end)

    def finish(self) -> Digester:
        """The digests of all that was announced. Raises OSError if it could not be read back, or if
        another thread stops this."""
        self._ends.put(None)
        self._thread.join()
        if self._error is not None:
            raise self._error
        if self._stopped:
            raise OSError(errno.ECANCELED, os.strerror(errno.ECANCELED))
        return self._digester

    def stop(self) -> None:
        """Lets the thread end soon, for when the file is given up."""
        self._stopped = True
        self._ends.put(None)

    def abandon(self) -> None:
        """Ends the thread, for when the file is given up."""
        self.stop()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._follow()
        except Exception as error:
            self._error = error

    def _follow(self) -> None:
        block, position, given_back = memoryview(bytearray(_BLOCK)), 0, 0
        while (end := self._ends.get()) is not None:
            while position < end and not self._stopped:
                count = read_at(self._descriptor, block[: end - position], position)
                if not count:
                    raise OSError("what was written cannot be read back")
                self._digester.update(block[:count])
                position += count
                if position - given_back >= _WRITE_BACK:
                    _start_write_back(self._descriptor, given_back, position - given_back)
                    given_back = position


def _start_write_back(descriptor: int, start: int, count: int) -> None:
    """Linux begins to write such a range to the disk without waiting; elsewhere fsync does it."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, start, count, os.POSIX_FADV_DONTNEED)
