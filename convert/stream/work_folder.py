"""The folder in which an output grows: beside its target, and gone unless it is committed."""

import errno
import os
import shutil
import uuid
from pathlib import Path
from types import TracebackType

from ..plan.errors import TargetError
from .writer import sync_folder


class WorkFolder:
    """`.<name>.partial-<id>` next to the target; `commit` renames it, any other end removes it."""

    def __init__(self, target: Path) -> None:
        self.target = target.parent.resolve() / target.name
        self.path = self.target.with_name(f".{target.name}.partial-{uuid.uuid4().hex[:12]}")

    def __enter__(self) -> Path:
        self.path.mkdir()
        return self.path

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
