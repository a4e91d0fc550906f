"""Whether a file is there: a disk that fails is an error, and no sign that a file is missing."""

import errno
import os
from pathlib import Path

from headcount.model.errors import HeadcountError

_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}
# What says something of the file, and not of the disk.
_FACTS = {*_ABSENT, errno.EACCES, errno.EPERM, errno.EISDIR}


def is_there(path: Path, *, or_its_link: bool = False) -> bool:
    """Whether `path` leads to something; `or_its_link`: a link to nothing counts. Raises
    HeadcountError if that cannot be told."""
    return mode_of(path, follow=not or_its_link) is not None


def mode_of(path: Path, *, follow: bool = True) -> int | None:
    """What stat says of the kind of `path`, or of the link that it is; None: nothing is there.
    Raises HeadcountError if that cannot be told."""
    found = status_of(path, follow=follow)
    return None if found is None else found.st_mode


def status_of(
    path: Path, *, follow: bool = True, folder: int | None = None
) -> os.stat_result | None:
    """What stat says of `path`, or of the link that it is; None: nothing is there. `folder` is the
    descriptor of the one that it was found in, which may have another name by now. Raises
    HeadcountError if that cannot be told."""
    try:
        found = path if folder is None else path.name
        return os.stat(found, dir_fd=folder, follow_symlinks=follow)
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise HeadcountError(f"{path}: cannot be read: {error.strerror or error}") from error


def is_failing_disk(error: HeadcountError) -> bool:
    """Whether a file could not be read for a reason that is none of its own."""
    cause = error.__cause__
    while isinstance(cause, HeadcountError):
        cause = cause.__cause__
    # Without a number it is what a library says that misses a file.
    return isinstance(cause, OSError) and cause.errno not in (None, *_FACTS)
