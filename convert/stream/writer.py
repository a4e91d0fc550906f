"""Writing files that are complete or an error: bytes moved by the kernel, fsync, then checked."""

import errno
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from headcount.model.errors import SourceChangedError

from ..plan.existing import DIGEST
from .descriptors import read_at
from .hashing import Follower
from .os_failures import reading
from .safetensors_header import BLOCK

CHUNK = 8 * 2**20
# One call moves at most this much, so that a progress bar moves and Ctrl-C is heard.
KERNEL_CHUNK = 64 * 2**20
# Errors that a second way of copying would only meet again.
_FINAL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

Advance = Callable[[int], Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """What a finished file holds: its bytes, and the hex digits of their digest, and of those of
    its parts, if it has any."""

    nbytes: int
    digest: str
    parts: tuple[str, ...] = ()

    def document(self) -> dict[str, object]:
        """The file's entry in the manifest of conversion.json."""
        return {"bytes": self.nbytes, DIGEST: self.digest}


class NewFile:
    """A file that must not exist yet, written from start to end; permissions follow the umask.

    It is `finish`ed, or given up by leaving the context.
    """

    def __init__(self, path: Path, advance: Advance) -> None:
        self.path = path
        self.advance = advance
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        self._descriptor = os.open(path, flags, 0o666)
        self._nbytes = 0
        self._follower = Follower(self._descriptor)
        self._open, self._handed_over = True, False
        self._in_kernel = hasattr(os, "copy_file_range")

    def __enter__(self) -> "NewFile":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._handed_over:
            self._close()

    def hand_over(self) -> None:
        """Leaving the context does nothing from now on: another thread finishes the file."""
        self._handed_over = True

    def give_up(self) -> None:
        """Lets a thread that is finishing the file fail soon."""
        self._follower.stop()

    def finish(self) -> Written:
        """Waits until all is on the disk, and closes. Raises OSError."""
        try:
            digests = self._follower.finish()
            os.fsync(self._descriptor)
        finally:
            self._close()
        return Written(nbytes=self._nbytes, digest=digests.whole(), parts=digests.parts())

    def _close(self) -> None:
        if self._open:
            self._open = False
            self._follower.abandon()
            os.close(self._descriptor)

    def divide(self, sizes: Iterable[int]) -> None:
        """What will be written has parts of these sizes, each with a digest of its own."""
        self._follower.divide(sizes)

    def write(self, data: bytes | memoryview) -> None:
        """All of `data`."""
        view = memoryview(data).cast("B")
        while view:
            count = os.write(self._descriptor, view[:KERNEL_CHUNK])
            view = view[count:]
            self._grow(count)

    def copy(self, source: int, start: int, end: int) -> None:
        """Bytes [start, end) of the descriptor `source`, in the kernel where that works."""
        while start < end:
            count = self._copy_some(source, start, end - start)
            if not count:
                raise SourceChangedError(
                    f"{self.path.name}: its source became shorter; start again"
                )
            start += count

    def _copy_some(self, source: int, start: int, count: int) -> int:
        """Up to the next block of the source; from there whole ones, which some file systems share
        between files instead of copying them."""
        if self._in_kernel:
            most = KERNEL_CHUNK if start % BLOCK == 0 else BLOCK - start % BLOCK
            try:
                moved = os.copy_file_range(
                    source, self._descriptor, min(count, most), offset_src=start
                )
            except OSError as error:
                if error.errno in _FINAL:
                    raise
                self._in_kernel = False  # another file system, or one without support
            else:
                self._grow(moved)
                return moved
        block = memoryview(bytearray(min(count, CHUNK)))
        with reading(Path(self.path.name)):
            count = read_at(source, block, start)
        self.write(block[:count])
        return count

    def _grow(self, count: int) -> None:
        self._nbytes += count
        self._follower.grown(self._nbytes)
        self.advance(count)


def write_bytes(path: Path, data: bytes) -> Written:
    """A small file, fsynced."""
    with NewFile(path, lambda count: None) as file:
        file.write(data)
        return file.finish()


def json_bytes(value: Any) -> bytes:
    """Indented JSON as transformers writes it, with the keys in the order they have."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def sync_folder(path: Path) -> None:
    """fsync of a folder, on systems and file systems that have it."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
