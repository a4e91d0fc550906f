"""What lies beside a target for the time of a run, and what killed runs have left there: hidden
folders whose names tell who made them."""

import os
import re
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from .process import OwningProcess, this_process


def real_place(target: Path) -> Path:
    """`target` without links and dots in what leads to it; a link of its own name stays."""
    if target.name in ("", ".."):
        return Path(os.path.realpath(target))
    return Path(os.path.realpath(target.parent), target.name)


def own_folder(target: Path, kind: str) -> Path:
    """A name, of a folder or a file, that nobody else takes:
    `.<name>.<kind>-<process>-<its start>-<host and random>`."""
    maker = this_process()
    made_by = f"{maker.pid}-{maker.start}-{maker.host}{uuid.uuid4().hex[:8]}"
    return target.with_name(f".{target.name}.{kind}-{made_by}")


def leftovers(target: Path, kind: str) -> Iterator[Path]:
    """The folders of that kind for `target` whose process has died, on this host."""
    return (path for path in _left(target, kind) if path.is_dir() and not path.is_symlink())


def left_files(target: Path, kind: str) -> Iterator[Path]:
    """The files of that kind, as `leftovers`."""
    return (path for path in _left(target, kind) if path.is_file() and not path.is_symlink())


def _left(target: Path, kind: str) -> Iterator[Path]:
    target = real_place(target)
    start = rf"\.{re.escape(target.name)}\.{kind}-"
    pattern = re.compile(rf"{start}([1-9][0-9]*)-([0-9]+)-([0-9a-f]{{8}})[0-9a-f]{{8}}")
    try:
        beside = sorted(target.parent.iterdir())
    except OSError:
        return  # it may be written to, but not listed
    for path in beside:
        match = pattern.fullmatch(path.name)
        if match:
            maker = OwningProcess(pid=int(match[1]), start=int(match[2]), host=match[3])
            if not maker.is_alive():
                yield path


def reclaimable(target: Path) -> int:
    """Bytes in such folders: a run for `target` goes on with them, or removes them."""
    return sum(map(_held_bytes, leftovers(target, "partial")))


def _held_bytes(folder: Path) -> int:
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # another run may be removing it
                total += Path(path, name).lstat().st_size
    return total
