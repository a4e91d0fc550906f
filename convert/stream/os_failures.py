"""Operating system errors as errors of ours: what could not be read, what could not be written."""

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headcount.model.errors import HeadcountError, WriteError

_FULL = {errno.ENOSPC, errno.EDQUOT}


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """An OSError inside is a failure to read `path`."""
    try:
        yield
    except OSError as error:
        raise HeadcountError(f"{path}: cannot be read: {error.strerror or error}") from error


@contextmanager
def writing(path: Path, nbytes: int) -> Iterator[None]:
    """An OSError inside is a failure to write `path`, which needs `nbytes` in all."""
    try:
        yield
    except OSError as error:
        raise WriteError(_explain(path, nbytes, error)) from error


def unconfirmed(target: Path, error: OSError) -> WriteError:
    """What there is to say of an output that has its name, on a disk that does not say so."""
    return WriteError(
        f"{target}: is complete, but its disk does not confirm that it is kept"
        f" ({error.strerror or error}): check the disk, then run `headcount audit` on it"
    )


def _explain(path: Path, nbytes: int, error: OSError) -> str:
    text = f"{path}: cannot be written: {error.strerror or error}"
    if error.errno not in _FULL:
        return f"{text}; nothing was kept"
    try:
        free = f"{shutil.disk_usage(path.parent).free:,} are free"
    except OSError:
        free = "what is free is not known"
    return f"{text}: it takes {nbytes:,} bytes, {free}; nothing was kept"
