"""What a work folder holds for certain: a line per finished file, on the disk before it counts.

The first line names the job (source, options, version of this program); of another job nothing is
trusted. The others hold a digest of themselves: one that a kill cut short, or that a disk or an
editor has changed, is none, and what follows it is not trusted either.
"""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headcount.model import limits
from headcount.model.errors import HeadcountError
from headcount.sources.json_file import open_bytes

from .descriptors import write_all
from .hashing import digest_of_bytes

NAME = "journal.jsonl"


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishedFile:
    """A file of the output: its size, the digest of its bytes and those of its parts, and what was
    measured while its tensors were made."""

    name: str
    nbytes: int
    digest: str
    parts: tuple[str, ...] = ()
    measured: Any


class Journal:
    """A file of lines that only grows. A new one, with what is `known`, replaces an old one."""

    def __init__(self, path: Path, job: str, known: Iterable[FinishedFile]) -> None:
        new = path.with_name(f"{path.name}.new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0)
        self._descriptor = os.open(new, flags, 0o666)
        try:
            self._append({"job": job}, *map(_line, known))
            new.replace(path)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        with suppress(OSError):  # all of it is on the disk
            os.close(self._descriptor)

    def add(self, file: FinishedFile) -> None:
        """On the disk when this returns. Raises OSError."""
        self._append(_line(file))

    def _append(self, *lines: dict[str, Any]) -> None:
        data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        write_all(self._descriptor, data)
        os.fsync(self._descriptor)


def read_journal(path: Path, job: str) -> tuple[FinishedFile, ...]:
    """The files that the journal at `path` lists for this `job`; none where it is another's."""
    lines = _lines(path)
    if next(lines, None) != {"job": job}:
        return ()
    return tuple(_files(lines))


def is_of_another_job(path: Path, job: str) -> bool:
    """Whether the journal at `path` is whole enough to say that it is not this `job`'s."""
    first = next(_lines(path), None)
    return isinstance(first, dict) and isinstance(first.get("job"), str) and first["job"] != job


def _files(lines: Iterator[Any]) -> Iterator[FinishedFile]:
    """Whole lines, up to the first that is not."""
    for line in lines:
        file = _file(line)
        if file is None:
            return
        yield file


def _line(file: FinishedFile) -> dict[str, Any]:
    content = asdict(file)
    return {"file": content, "digest": _digest(content)}


def _digest(content: Any) -> str:
    return digest_of_bytes(json.dumps(content).encode())


def _file(line: Any) -> FinishedFile | None:
    """What a line says, if it is as it was written."""
    try:
        content = line["file"]
        if line["digest"] != _digest(content):
            return None
        file = FinishedFile(**{**content, "parts": tuple(content["parts"])})
    except (KeyError, TypeError):
        return None
    return file if _is_sound(file) else None


def _is_sound(file: FinishedFile) -> bool:
    """Whether the types are right, and the name is one that lies in the folder: `NAME`, or
    `FOLDER/NAME`."""
    if not isinstance(file.name, str) or type(file.nbytes) is not int:
        return False
    parts = file.name.split("/")
    is_plain = len(parts) <= 2 and not {"", ".", ".."} & {*parts} and "\0" not in file.name
    return is_plain and all(isinstance(digest, str) for digest in (file.digest, *file.parts))


def _lines(path: Path) -> Iterator[Any]:
    try:
        with open_bytes(path) as file:
            data = file.read(limits.JOURNAL_BYTES.most)
    except HeadcountError:
        return
    for line in data.split(b"\n")[:-1]:
        try:
            yield json.loads(line)
        except (ValueError, RecursionError):
            return
