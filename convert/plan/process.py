"""Which process made a lock or a folder, and whether it still runs."""

import hashlib
import os
import platform
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class OwningProcess:
    """A process: its number, its start in clock ticks since boot (0 where the system does not
    tell), and eight digits for its machine, whose processes others cannot ask for."""

    pid: int
    start: int
    host: str

    def is_alive(self) -> bool:
        """Whether it may still run: true of a process of another machine, and true on Windows,
        where asking would end it. A number that a younger process got is not it."""
        if self.host != _host() or os.name == "nt":
            return True
        try:
            os.kill(self.pid, 0)
        except (ProcessLookupError, OverflowError):
            return False
        except PermissionError:
            pass  # it is another user's
        return not self.start or _start_of(self.pid) in (0, self.start)


def this_process() -> OwningProcess:
    """The one that asks."""
    pid = os.getpid()
    return OwningProcess(pid=pid, start=_start_of(pid), host=_host())


def _host() -> str:
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


def _start_of(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        return int(stat.rpartition(b")")[2].split()[19])  # field 22; the name may hold blanks
    except (OSError, ValueError, IndexError):
        return 0
