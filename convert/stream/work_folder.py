"""The folder in which an output grows: beside its target, resumed after a kill, else removed.

A signal removes it, too, unless it holds rewritten layers, which may have taken hours.

It holds the journal, files that are being written, and `model/`, which gets the target's name. In
`old/` lies what that replaces, between two renames; in `rewritten/` are layers of the source with
other values, which the model is made of and which go away with the folder.
"""

import errno
import os
import shutil
import sys
from pathlib import Path
from types import TracebackType

from ..plan.errors import TargetError
from ..plan.leftovers import leftovers, own_folder
from .hashing import sha256_of
from .journal import NAME, FinishedFile, Journal, read_journal
from .writer import Written, sync_folder

_KIND = "partial"
# The folder, and the start of the journal's names, of what is no part of the output.
REWRITTEN = "rewritten"
# How a signal leaves the context.
_SIGNALLED = (KeyboardInterrupt, SystemExit)


class WorkFolder:
    """`.<name>.partial-…` next to the target.

    Inside the context, everything that killed runs have left for this target is claimed; on leaving
    it, all that was not committed is removed, but for rewritten layers if a signal is the reason.
    `finished` are the files that need no second writing, those that `rewritten/…` names among them.
    """

    def __init__(self, target: Path, job: str, *, resumable: bool = True) -> None:
        self.target = target.parent.resolve() / target.name
        self.job = job
        self.path = own_folder(self.target, _KIND)
        self.finished: dict[str, FinishedFile] = {}
        self._claimed: list[Path] = []
        self._journal: Journal | None = None
        self._worth_keeping = resumable

    @property
    def model(self) -> Path:
        """What gets the target's name in the end."""
        return self.path / "model"

    @property
    def of_model(self) -> tuple[FinishedFile, ...]:
        """The finished files of the output."""
        return tuple(f for name, f in self.finished.items() if not _is_rewritten(name))

    def place(self, name: str) -> Path:
        """Where a file of that name is kept."""
        return _place(self.path, name)

    def __enter__(self) -> "WorkFolder":
        for left in leftovers(self.target, _KIND):
            mine = own_folder(self.target, _KIND)
            try:
                left.rename(mine)
            except FileNotFoundError:
                continue  # another run was quicker
            self._claimed.append(mine)
            self._finish_replacing(mine)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._journal is not None:
            self._journal.close()
        kept = self._layers_to_keep() if kind in _SIGNALLED else 0
        for path in {self.path, *self._claimed}:
            if not kept or path != self.path:
                _remove(path)
        if kept:
            _say(
                f"stopped; {kept} rewritten layers are kept in {self.path}: the same command goes"
                " on with them, removing that folder gives them up"
            )

    def _layers_to_keep(self) -> int:
        """How many layers took work that the next run of the same job need not do again."""
        layers = (n for n in self.finished if _is_rewritten(n) and n.endswith(".safetensors"))
        return len(list(layers)) if self._worth_keeping else 0

    def start(self) -> None:
        """Goes on where a killed run of the same job stopped, or begins. Raises OSError."""
        for claimed in self._claimed:
            if not self.finished and self._adopt(claimed):
                _say(f"resuming {self.target}: {len(self.finished)} files of a killed run are kept")
            else:
                _remove(claimed)
                _say(f"removed {claimed}, which a killed run had left")
        if not self.finished:
            self.path.mkdir()
            self.model.mkdir()
        self._journal = Journal(self.path / NAME, self.job, self.finished.values())

    def _adopt(self, claimed: Path) -> bool:
        """Whether it holds something to go on with. Files that are half-written, and those that
        are made in the end, are removed from it."""
        model, rewritten = claimed / "model", claimed / REWRITTEN
        files = read_journal(claimed / NAME, self.job)
        whole = {file.name: file for file in files if _is_whole(claimed, file)}
        if not whole or (claimed / "old").exists():
            return False
        kept = {model, rewritten, claimed / NAME, *(_place(claimed, name) for name in whole)}
        for folder in (claimed, model, rewritten):
            for path in folder.iterdir() if folder.exists() else ():
                if path not in kept:
                    path.unlink()
        self.path, self.finished = claimed, whole
        return True

    def temporary(self, name: str) -> Path:
        """Where a file of that name is written before it is `keep`t."""
        return self.path / f"{name}.new"

    def keep(self, name: str, written: Written, measured: object) -> None:
        """Moves a temporary file to its place, for good. Raises OSError."""
        assert self._journal is not None
        self.temporary(name).rename(self.place(name))
        file = FinishedFile(
            name=name, nbytes=written.nbytes, sha256=written.sha256, measured=measured
        )
        self._journal.add(file)
        self.finished[name] = file

    def commit(self, *, replacing: bool) -> None:
        """Gives the model its final name; if `replacing`, to what has it now another first. Raises
        TargetError if somebody has made a target meanwhile, and OSError: then all is as it was."""
        sync_folder(self.model)
        sync_folder(self.path)
        old = self.path / "old"
        if replacing:
            self.target.rename(old)
        try:
            self._rename(self.model, self.target)
            self._sync_target()
        except BaseException:
            if replacing:
                old.rename(self.target)
            raise
        self._worth_keeping = False

    def _sync_target(self) -> None:
        try:
            sync_folder(self.target.parent)
        except BaseException:
            self.target.rename(self.model)
            raise

    def _rename(self, path: Path, target: Path) -> None:
        try:
            path.rename(target)  # also onto an empty folder
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise TargetError(
                    f"{target}: was made by somebody else meanwhile; name another folder"
                ) from error
            raise

    def _finish_replacing(self, claimed: Path) -> None:
        """A run that was killed between its two renames had its model whole and checked."""
        if (claimed / "old").exists() and not self.target.exists():
            self._rename(claimed / "model", self.target)
            sync_folder(self.target.parent)
            _say(f"{self.target}: is now what a killed run had finished")


def _is_rewritten(name: str) -> bool:
    return name.startswith(f"{REWRITTEN}/")


def _place(folder: Path, name: str) -> Path:
    return folder / name if _is_rewritten(name) else folder / "model" / name


def _is_whole(folder: Path, file: FinishedFile) -> bool:
    path = _place(folder, file.name)
    return path.is_file() and path.stat().st_size == file.nbytes and sha256_of(path) == file.sha256


def _remove(path: Path) -> None:
    """All of it; once more if that fails, since a disk that fails once may not fail twice."""
    for _ in range(2):
        shutil.rmtree(path, ignore_errors=True)
        if not os.path.lexists(path):
            return


def _say(text: str) -> None:
    print(text, file=sys.stderr)
