"""The folder in which an output grows: beside its target, and gone unless it is committed."""

import errno
import hashlib
import os
import platform
import re
import shutil
import uuid
from pathlib import Path
from types import TracebackType

from ..plan.errors import TargetError
from .writer import sync_folder


class WorkFolder:
    """`.<name>.partial-<process>-<host and random>` next to the target; `commit` renames it, any
    other end removes it."""

    def __init__(self, target: Path) -> None:
        self.target = target.parent.resolve() / target.name
        made_by = f"{os.getpid()}-{_host()}{uuid.uuid4().hex[:8]}"
        self.path = self.target.with_name(f".{target.name}.partial-{made_by}")

    def __enter__(self) -> Path:
        try:
            self.path.mkdir()
        except BaseException:  # a signal after it was made
            shutil.rmtree(self.path, ignore_errors=True)
            raise
        return self.path

    def remove_stale(self) -> tuple[Path, ...]:
        """Removes, and returns, what killed runs for the same target on this host have left."""
        if os.name == "nt":  # where os.kill would not ask but end the process
            return ()
        name = re.escape(self.target.name)
        pattern = re.compile(rf"\.{name}\.partial-([1-9][0-9]*)-{_host()}[0-9a-f]{{8}}")
        try:
            beside = tuple(self.target.parent.iterdir())
        except OSError:
            return ()  # it may be written to, but not listed
        stale = tuple(
            path
            for path in beside
            if (match := pattern.fullmatch(path.name))
            and path.is_dir()
            and not path.is_symlink()
            and not _is_alive(int(match[1]))
        )
        for path in stale:
            shutil.rmtree(path, ignore_errors=True)
        return tuple(path for path in stale if not path.exists())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def commit(self) -> None:
        """Gives the folder its final name. Raises TargetError if another has taken it."""
        sync_folder(self.path)
        try:
            os.rename(self.path, self.target)  # noqa: PTH104 - onto an empty folder, too
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise TargetError(
                    f"{self.target}: was made by somebody else meanwhile; name another folder"
                ) from error
            raise
        sync_folder(self.target.parent)


def _host() -> str:
    """Eight digits for this machine: on a shared disk, processes of others cannot be asked for."""
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True  # it is another user's
    return True
