"""Two folders that take each other's names in one step, where the system can do that."""

import ctypes
import errno
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

_AT_FDCWD = -100  # fcntl.h of Linux
_RENAME_EXCHANGE = 1 << 1  # linux/fs.h
_RENAME_SWAP = 2  # sys/stdio.h of macOS
# A file system, a kernel or a filter of system calls that has no such step.
_CANNOT = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM}


def exchange(one: Path, other: Path) -> bool:
    """Gives each of two paths what the other has: renameat2 of Linux, renamex_np of macOS. False:
    nothing was done, as this system or file system cannot. Raises OSError."""
    call = _call()
    if call is None:
        return False
    if call(os.fsencode(one), os.fsencode(other)) == 0:
        return True
    number = ctypes.get_errno()
    if number in _CANNOT:
        return False
    raise OSError(number, os.strerror(number), str(one), None, str(other))


@lru_cache(maxsize=1)
def _call() -> Any:
    """C's function of two paths; None: there is none."""
    library = ctypes.CDLL(None, use_errno=True)
    if linux := getattr(library, "renameat2", None):
        return lambda a, b: linux(_AT_FDCWD, a, _AT_FDCWD, b, ctypes.c_uint(_RENAME_EXCHANGE))
    if macos := getattr(library, "renamex_np", None):
        return lambda a, b: macos(a, b, ctypes.c_uint(_RENAME_SWAP))
    return None
