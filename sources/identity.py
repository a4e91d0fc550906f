"""Which file was read, told by the open file itself: a name may lead to another one a moment later.

What this cannot tell apart: a file that is written to in place within one tick of the clock that
its last change fell into already (1 to 4 ms on Linux before 6.13, seconds on some network and FAT
file systems), so a file that was only just made; and a system on which times can be set back at
will. The digests that a conversion records of what it read find that later.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from headcount.model.errors import SourceChangedError


@dataclass(frozen=True, kw_only=True, slots=True)
class FileIdentity:
    """A state of a file: where it lies, its size in bytes, and when its content (`modified_ns`)
    and anything about it, its names and times among that (`changed_ns`), last changed."""

    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int

    @classmethod
    def of(cls, descriptor: int) -> "FileIdentity":
        """That of an open file. Raises OSError."""
        return identity_of(os.fstat(descriptor))

    @property
    def lasting(self) -> str:
        """All but the device, whose number may be another after a restart of the machine."""
        return f"{self.inode} {self.size} {self.modified_ns} {self.changed_ns}"


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadFile:
    """A file that was read: the bytes that were taken from its start (a header, or all of it), and
    the identity that the open file had before. `path` is what it was opened by."""

    path: Path
    identity: FileIdentity
    start: bytes = field(repr=False)


def identity_of(status: os.stat_result) -> FileIdentity:
    """What the system says of a file, as its identity."""
    return FileIdentity(
        device=status.st_dev,
        inode=status.st_ino,
        size=status.st_size,
        modified_ns=status.st_mtime_ns,
        changed_ns=status.st_ctime_ns,
    )


def check_identity(path: Path, found: FileIdentity | None, wanted: FileIdentity) -> None:
    """Raises SourceChangedError unless both are the same; None: it was not there."""
    if found != wanted:
        raise SourceChangedError(f"{path}: changed during the run; start again")


def check_unchanged(files: Iterable[tuple[Path, FileIdentity]]) -> None:
    """Raises SourceChangedError if a path no longer leads to the file that was read, as it was."""
    for path, identity in files:
        try:
            status = path.stat()
        except OSError as error:
            raise SourceChangedError(f"{path}: {error.strerror}; start again") from error
        check_identity(path, identity_of(status), identity)
