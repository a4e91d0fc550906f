"""The folder in which an output grows: beside its target, resumed after a kill, else removed.

A signal removes it, too, unless it holds rewritten layers, which may have taken hours. A run that
ends before it has looked at what others left takes no such layers away with it either. Whatever
lies in one that was not put there by a run is removed with it, and no link in it is followed.

It holds the journal, files that are being written, and `model/`, which gets the target's name; what
that replaces takes its place here in the same step. Where the system has no such step, the old one
lies in `old/` between two renames. In `rewritten/` are layers of the source with other values,
which the model is made of and which go away with the folder.
"""

import errno
import os
import stat
import sys
from pathlib import Path
from types import TracebackType

from headcount.model.errors import HeadcountError
from headcount.running.passing_folder import remove_folder
from headcount.running.signals import SIGNALLED, held_signals

from ..plan.errors import TargetError
from ..plan.leftovers import leftovers, own_folder, real_place
from .exchange import exchange
from .hashing import digest_of
from .journal import NAME, FinishedFile, Journal, is_of_another_job, read_journal
from .os_failures import unconfirmed
from .writer import Written, sync_folder

_KIND = "partial"
# The folder, and the start of the journal's names, of what is no part of the output.
REWRITTEN = "rewritten"


class WorkFolder:
    """`.<name>.partial-…` next to the target.

    Inside the context, everything that killed runs have left for this target is claimed; on leaving
    it, all that was not committed is removed, but for rewritten layers if a signal is the reason.
    `finished` are the files that need no second writing, those that `rewritten/…` names among them.
    `is_done`: the model has its final name.
    """

    def __init__(self, target: Path, job: str, *, resumable: bool = True) -> None:
        self.target = real_place(target)
        self.job = job
        self.path = own_folder(self.target, _KIND)
        self.finished: dict[str, FinishedFile] = {}
        self._claimed: dict[Path, Path] = {}  # what others left -> the name that they gave it
        self._journal: Journal | None = None
        self._worth_keeping = resumable
        self._has_begun = False
        self.is_done = False

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
            except (FileNotFoundError, PermissionError):
                continue  # another run was quicker, or it is another user's
            self._claimed[mine] = left
            self._finish_replacing(mine)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with held_signals():
            self._leave(kind)

    def _leave(self, kind: type[BaseException] | None) -> None:
        if self._journal is not None:
            self._journal.close()
        for path in {self.path, *self._claimed}:
            if self._holds_the_old_model(path):
                _say(f"{path}: holds what {self.target} was, since it could not be put back")
                continue
            kept = self._layers_to_keep(path, kind)
            if not kept:
                if not remove_folder(path):
                    _say(f"{path}: cannot be removed; nothing in it is needed any more")
                continue
            _say(
                f"stopped; {_layers(kept)} kept in {self._given_back(path)}: the same command goes"
                f" on with what is there, any other conversion into {self.target} removes it"
            )

    def _given_back(self, path: Path) -> Path:
        """The folder under the name that it was found by, which users may have noted."""
        before = self._claimed.get(path, path)
        try:
            return path.rename(before)
        except OSError:
            return path

    def _holds_the_old_model(self, path: Path) -> bool:
        """Whether neither the new nor the old model could get the target's name."""
        if self.is_done:
            return False
        return os.path.lexists(path / "old") and not os.path.lexists(self.target)

    def _layers_to_keep(self, path: Path, kind: type[BaseException] | None) -> int:
        """How many layers in `path` took work that the next run of the same job need not do again:
        those of this run if a signal ends it, and those that it has not looked at if it fails."""
        ended = kind in SIGNALLED or (kind is not None and not self._has_begun)
        if not ended or not self._worth_keeping or (path / "old").exists():
            return 0
        found = _rewritten_in(path)
        return len(found & self.finished.keys() if path == self.path else found)

    def start(self) -> None:
        """Goes on where a killed run of the same job stopped, or begins. Raises OSError."""
        for claimed in self._claimed:
            if not self.finished and self._adopt(claimed):
                _say(f"resuming {self.target}: {self._resumed()} of a stopped run")
                continue
            what = self._left_in(claimed)
            if remove_folder(claimed):
                _say(f"removed {self._claimed[claimed]}, which {what}")
        if not self.finished:
            self.path.mkdir()
            self.model.mkdir()
        self._journal = Journal(self.path / NAME, self.job, self.finished.values())
        self._has_begun = True

    def _resumed(self) -> str:
        """What there is to go on with: `2 rewritten layers and 1 finished file`."""
        layers = len(_rewritten_in(self.path) & self.finished.keys())
        files = len(self.of_model)
        of_model = f"{files} finished file{'' if files == 1 else 's'}"
        shown = layers or not files
        found = [f"{layers} rewritten layer{'' if layers == 1 else 's'}"] if shown else []
        return " and ".join([*found, *([of_model] if files else [])])

    def _left_in(self, claimed: Path) -> str:
        """Whose work a folder is that is of no use to this run, and what goes away with it."""
        layers = len(_rewritten_in(claimed))
        lost = f"; {_layers(layers)} lost" if layers else ""
        if is_of_another_job(claimed / NAME, self.job):
            return (
                f"a stopped run of another conversion into {self.target} had left (another source,"
                f" other options or another version){lost}"
            )
        return f"a stopped run had left{lost}"

    def _adopt(self, claimed: Path) -> bool:
        """Whether it holds something to go on with. Files that are half-written, and those that
        are made in the end, are removed from it."""
        model, rewritten = claimed / "model", claimed / REWRITTEN
        folders = [path for path in (model, rewritten) if os.path.lexists(path)]
        if model not in folders or not all(map(_is_folder, folders)):
            return False
        files = read_journal(claimed / NAME, self.job)
        whole = {file.name: file for file in files if _is_whole(claimed, file)}
        if not whole or os.path.lexists(claimed / "old"):
            return False
        kept = {*folders, claimed / NAME, *(_place(claimed, name) for name in whole)}
        for folder in (claimed, *folders):
            for path in folder.iterdir():
                if path not in kept:
                    _remove(path)
        self.finished = whole
        self.path = claimed
        return True

    def temporary(self, name: str) -> Path:
        """Where a file of that name is written before it is `keep`t."""
        return self.path / f"{name}.new"

    def keep(self, name: str, written: Written, measured: object) -> None:
        """Moves a temporary file to its place, for good. Raises OSError."""
        assert self._journal is not None
        self.temporary(name).rename(self.place(name))
        file = FinishedFile(
            name=name,
            nbytes=written.nbytes,
            digest=written.digest,
            parts=written.parts,
            measured=measured,
        )
        self._journal.add(file)
        self.finished[name] = file

    def commit(self, *, replacing: bool) -> None:
        """Gives the model its final name; if `replacing`, to what has it now another first. Raises
        TargetError if somebody has made a target meanwhile, and OSError: then all is as it was."""
        sync_folder(self.model)
        sync_folder(self.path)
        old, worth, new = self.path / "old", self._worth_keeping, self.model.stat()
        try:
            if not (replacing and exchange(self.model, self.target)):
                if replacing:
                    self.target.rename(old)
                self._rename(self.model, self.target)
            sync_folder(self.target.parent)
            self._worth_keeping, self.is_done = False, True
        except BaseException:
            self._worth_keeping, self.is_done = worth, False
            self._take_back(old, new)
            raise

    def _take_back(self, old: Path, new: os.stat_result) -> None:
        """All as it was before `commit`, whose model was `new`. What was renamed is read from the
        disk: a signal can come between a rename and whatever would note it."""
        is_there = self.model.exists()
        is_new = is_there and os.path.samestat(self.model.stat(), new)
        try:
            if not is_there:
                self.target.rename(self.model)
            elif not is_new:
                exchange(self.model, self.target)
        except OSError as error:
            raise unconfirmed(self.target, error) from error
        if not old.exists():
            return
        try:
            old.rename(self.target)
        except OSError:  # somebody has made another target meanwhile
            aside = own_folder(self.target, "replaced")
            old.rename(aside)
            _say(f"{self.target}: what it held before is in {aside}")

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
        """A run that was killed between its two renames had its model whole and checked. Should
        that be gone, what it was to replace is put back."""
        old, model = claimed / "old", claimed / "model"
        if not _is_folder(old) or os.path.lexists(self.target):
            return
        is_whole = _is_folder(model)
        self._rename(model if is_whole else old, self.target)
        sync_folder(self.target.parent)
        what = "is now what a killed run had finished" if is_whole else "is back: a run was killed"
        _say(f"{self.target}: {what}")


def _rewritten_in(folder: Path) -> set[str]:
    """The names of the rewritten layers that lie there."""
    return {f"{REWRITTEN}/{layer.name}" for layer in (folder / REWRITTEN).glob("*.safetensors")}


def _layers(count: int) -> str:
    return "1 rewritten layer is" if count == 1 else f"{count} rewritten layers are"


def _is_rewritten(name: str) -> bool:
    return name.startswith(f"{REWRITTEN}/")


def _place(folder: Path, name: str) -> Path:
    return folder / name if _is_rewritten(name) else folder / "model" / name


def _is_whole(folder: Path, file: FinishedFile) -> bool:
    """A link, or a file that has another name elsewhere, is nobody's whole file."""
    path = _place(folder, file.name)
    try:
        found = path.lstat()
        is_own = stat.S_ISREG(found.st_mode) and found.st_nlink <= 1
        return is_own and found.st_size == file.nbytes and digest_of(path) == file.digest
    except (OSError, HeadcountError):
        return False


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _remove(path: Path) -> None:
    """Raises OSError."""
    if not _is_folder(path):
        path.unlink()
    elif not remove_folder(path):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))


def _say(text: str) -> None:
    print(text, file=sys.stderr)
