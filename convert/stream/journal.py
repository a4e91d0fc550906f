"""What a work folder holds for certain: a line per finished file, on the disk before it counts.

The first line names the job (source, options, version of this program); of another job nothing is
trusted. A line that a kill cut short is none.
"""

import errno
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

NAME = "journal.jsonl"


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishedFile:
    """A file of the output: its size, the digest of its bytes and those of its parts, and what was
    measured while its tensors were made."""

    name: str
    nbytes: int
    digest: str
    parts: Sequence[str]
    measured: Any


class Journal:
    """A file of lines that only grows. A new one, with what is `known`, replaces an old one."""

    def __init__(self, path: Path, job: str, known: Iterable[FinishedFile]) -> None:
        new = path.with_name(f"{path.name}.new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0)
        self._descriptor = os.open(new, flags, 0o666)
        try:
            self._append({"job": job}, *(asdict(file) for file in known))
            new.replace(path)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        os.close(self._descriptor)

    def add(self, file: FinishedFile) -> None:
        """On the disk when this returns. Raises OSError."""
        self._append(asdict(file))

    def _append(self, *lines: dict[str, Any]) -> None:
        data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        if os.write(self._descriptor, data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(self._descriptor)


def read_journal(path: Path, job: str) -> tuple[FinishedFile, ...]:
    """The files that the journal at `path` lists for this `job`; none where it is another's."""
    lines = _lines(path)
    if next(lines, None) != {"job": job}:
        return ()
    return tuple(_files(lines))


def _files(lines: Iterator[Any]) -> Iterator[FinishedFile]:
    """Whole lines, up to the first that is not."""
    for line in lines:
        try:
            yield FinishedFile(**line)
        except TypeError:
            return


def _lines(path: Path) -> Iterator[Any]:
    try:
        data = path.read_bytes()
    except OSError:
        return
    for line in data.split(b"\n")[:-1]:
        try:
            yield json.loads(line)
        except ValueError:
            return
