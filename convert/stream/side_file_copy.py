"""Copying a file that lies beside the weights, if it is still the one that was planned with."""

import os
from pathlib import Path

from headcount.sources.identity import FileIdentity, check_identity
from headcount.sources.json_file import open_regular

from ..plan.side_files import SideFile
from .os_failures import reading
from .writer import Advance, NewFile, Written


def copy_side_file(file: SideFile, folder: Path, advance: Advance = lambda count: None) -> Written:
    """The file under its name in `folder`, on the disk. Raises SourceChangedError unless it was the
    planned one from the first byte to the last; OSError is a failure to write."""
    descriptor = open_regular(file.path)
    try:
        _check(file, descriptor)
        with NewFile(folder / file.name, advance) as out:
            out.copy(descriptor, 0, file.nbytes)
            written = out.finish()
        _check(file, descriptor)
        return written
    finally:
        os.close(descriptor)


def _check(file: SideFile, descriptor: int) -> None:
    with reading(file.path):
        check_identity(file.path, FileIdentity.of(descriptor), file.identity)
