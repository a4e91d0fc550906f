"""Is a folder a mount point? Such a one can be neither renamed nor replaced by a rename."""

import os
import re
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")


def is_mount_point(folder: Path) -> bool:
    """By its device, which is another one than that of its parent, and by Linux's list of mounts,
    which has folders that are mounted from the same file system, too (proc(5): the fifth field)."""
    real = os.path.realpath(folder)
    return os.path.ismount(real) or real in _mounts()


def _mounts() -> set[str]:
    try:
        lines = _MOUNTS.read_bytes().splitlines()
    except OSError:
        return set()
    return {os.fsdecode(_unescaped(line.split(b" ")[4])) for line in lines if line.count(b" ") > 4}


def _unescaped(path: bytes) -> bytes:
    return re.sub(rb"\\([0-7]{3})", lambda found: bytes([int(found[1], 8) & 255]), path)
