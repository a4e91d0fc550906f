"""What killed runs have left beside a target: hidden folders whose names tell who made them."""

import re
import uuid
from collections.abc import Iterator
from pathlib import Path

from .process import OwningProcess, this_process


def own_folder(target: Path, kind: str) -> Path:
    """A name that nobody else takes: `.<name>.<kind>-<process>-<its start>-<host and random>`."""
    maker = this_process()
    made_by = f"{maker.pid}-{maker.start}-{maker.host}{uuid.uuid4().hex[:8]}"
    return target.with_name(f".{target.name}.{kind}-{made_by}")


def leftovers(target: Path, kind: str) -> Iterator[Path]:
    """The folders of that kind for `target` whose process has died, on this host."""
    start = rf"\.{re.escape(target.name)}\.{kind}-"
    pattern = re.compile(rf"{start}([1-9][0-9]*)-([0-9]+)-([0-9a-f]{{8}})[0-9a-f]{{8}}")
    try:
        beside = sorted(target.parent.resolve().iterdir())
    except OSError:
        return  # it may be written to, but not listed
    for path in beside:
        match = pattern.fullmatch(path.name)
        if match and path.is_dir() and not path.is_symlink():
            maker = OwningProcess(pid=int(match[1]), start=int(match[2]), host=match[3])
            if not maker.is_alive():
                yield path


def reclaimable(target: Path) -> int:
    """Bytes in such folders: a run for `target` goes on with them, or removes them."""
    return sum(
        file.lstat().st_size
        for folder in leftovers(target, "partial")
        for file in folder.rglob("*")
        if not file.is_dir()
    )
