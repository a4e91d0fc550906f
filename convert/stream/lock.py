"""One run at a time for one target: a file beside it says who is at work.

It saves work, no more. What keeps an output whole are folders that only one process can claim and
renames that only one can win: two runs without it give one valid model, too.
"""

import glob
import json
import os
import stat
import time
import uuid
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType

from headcount.model import limits
from headcount.model.errors import HeadcountError
from headcount.running.signals import held_signals
from headcount.sources.json_file import open_regular

from ..plan.errors import TargetError
from ..plan.leftovers import real_place
from ..plan.process import OwningProcess, this_process
from .descriptors import write_all

_PATIENCE = 0.2  # seconds that a rival may take between making its lock and writing into it


class TargetLock:
    """`.<name>.lock` beside the target, made so that only one process can be the one."""

    def __init__(self, target: Path) -> None:
        self.target = target
        place = real_place(target)
        self.path = place.with_name(f".{place.name}.lock")

    def __enter__(self) -> "TargetLock":
        """Raises TargetError at once if another process holds it; a dead one's is taken over."""
        while not self._taken():
            self._remove_dead()
        return self

    def _taken(self) -> bool:
        """Whether the lock is this process's now; False if there is one already."""
        made = False
        try:
            with held_signals():  # one that comes between the two steps would leave an empty lock
                try:
                    descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
                except FileExistsError:
                    return False
                made = True
                try:
                    write_all(descriptor, json.dumps(asdict(this_process())).encode())
                finally:
                    os.close(descriptor)
            self._remove_asides()
        except BaseException:
            if made:
                self._release()
            raise
        return True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with held_signals():
            mine = this_process()
            if mine in (_read(self.path), _read(self.path)):  # a disk may fail once
                self._release()

    def _release(self) -> None:
        for _ in range(2):  # a disk that fails once may not fail twice
            with suppress(OSError):
                self.path.unlink()
                return

    def _remove_dead(self) -> None:
        """Takes the lock aside first, so that of two processes that find it dead one removes it."""
        self._check_kind()
        holder = _read_patiently(self.path)
        if holder is not None and holder.is_alive():
            raise TargetError(
                f"{self.target}: process {holder.pid} is writing it; wait until it is done"
                f" (if none is, on no machine, remove {self.path})"
            )
        aside = self.path.with_name(f"{self.path.name}-{uuid.uuid4().hex[:8]}")
        try:
            self.path.rename(aside)
        except FileNotFoundError:
            return  # released, or taken over by another
        if _read(aside) != holder:  # a living one took its place meanwhile
            with suppress(OSError):
                os.link(aside, self.path)
        aside.unlink(missing_ok=True)

    def _check_kind(self) -> None:
        """Raises TargetError for what no run can have put there, or what may not be looked into: it
        is somebody's."""
        with suppress(FileNotFoundError):
            mode = self.path.lstat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
                raise TargetError(f"{self.path}: has the name of a lock, and is none: move it away")
            if stat.S_ISREG(mode) and not os.access(self.path, os.R_OK):
                raise TargetError(
                    f"{self.path}: may not be read: another user seems to be writing"
                    f" {self.target}; if nobody is, remove it"
                )

    def _remove_asides(self) -> None:
        """What was taken aside by a process that was killed then."""
        with suppress(OSError):
            for path in self.path.parent.glob(f"{glob.escape(self.path.name)}-????????"):
                path.unlink(missing_ok=True)


def _read_patiently(path: Path) -> OwningProcess | None:
    """Who holds the lock; None if it was killed before it could say so."""
    deadline = time.monotonic() + _PATIENCE
    while (holder := _read(path)) is None and time.monotonic() < deadline:
        time.sleep(0.02)
    return holder


def _read(path: Path) -> OwningProcess | None:
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            found = OwningProcess(**json.loads(file.read(limits.LOCK_BYTES.most)))
    except (OSError, HeadcountError, ValueError, TypeError, RecursionError):
        return None
    is_one = type(found.pid) is int is type(found.start) and isinstance(found.host, str)
    return found if is_one and found.pid > 0 else None
