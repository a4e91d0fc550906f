"""Where a training keeps what it has reached: a hidden folder beside the target, until success.

`.NAME.uptraining/` holds `job.json` (what is trained, and how), `before.json` (the scores of the
untrained model), the last `checkpoint-…/` with `progress.json` in it, and `model/`, which gets the
target's name in the end. A checkpoint is weights and what the optimizer remembers or, at the end of
a phase, the weights alone. Only the main process writes here.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from headcount.convert.plan.errors import TargetError
from headcount.convert.plan.leftovers import real_place
from headcount.convert.stream.os_failures import unconfirmed
from headcount.convert.stream.writer import json_bytes, sync_folder, write_bytes
from headcount.model.errors import HeadcountError, WriteError
from headcount.running.passing_folder import remove_folder
from headcount.running.signals import held_signals
from headcount.sources.json_file import read_json

_JOB = "job.json"
_PROGRESS = "progress.json"
_CHECKPOINT = re.compile(r"checkpoint-(\d{6,})")


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far a training is. `history` are entries of the report's table, `pending` the losses of
    the steps since its last one. `seconds` were spent on all steps so far."""

    step: int = 0
    seconds: float = 0.0
    history: tuple[dict[str, Any], ...] = ()
    pending: tuple[float, ...] = field(default=())


class TrainingFolder:
    """The folder of one target. Every method that is not said to be for all is for the main
    process."""

    def __init__(self, target: Path) -> None:
        self.target = real_place(target)
        self.path = self.target.with_name(f".{self.target.name}.uptraining")
        self.is_done = False  # the model has its final name
        self.reached = 0  # the step of the last checkpoint; 0: there is none

    @property
    def model(self) -> Path:
        """What gets the target's name."""
        return self.path / "model"

    @staticmethod
    def weights(checkpoint: Path) -> Path:
        """The weights of a checkpoint. For all processes."""
        return checkpoint / "weights.safetensors"

    @staticmethod
    def optimizer(checkpoint: Path) -> Path:
        """What the optimizer remembers there, but at the end of a phase. For all processes."""
        return checkpoint / "optimizer.safetensors"

    def open(self, job: dict[str, Any], *, resume: bool) -> Progress:
        """Begins, or goes on where a run of the same job stopped. Raises TargetError for what a run
        of another job has left, since hours may be in it."""
        if self.path.is_dir() and not resume:
            shutil.rmtree(self.path)
        if not self.path.is_dir():
            self.path.mkdir()
            write_bytes(self.path / _JOB, json_bytes(job))
            sync_folder(self.path)
            return Progress()
        self._check_job(job)
        self._sweep()
        last = self._last()
        progress = Progress() if last is None else _read_progress(last)
        self.reached = progress.step
        if progress.step:
            print(f"resuming {self.target}: from step {progress.step:,}", file=sys.stderr)
        return progress

    def _check_job(self, job: dict[str, Any]) -> None:
        try:
            found = read_json(self.path / _JOB)
        except HeadcountError:
            found = {}  # killed before it was written: nothing was trained
            if self._last() is None:
                (self.path / _JOB).unlink(missing_ok=True)
                write_bytes(self.path / _JOB, json_bytes(job))
                return
        other = [key for key in {**found, **job} if found.get(key) != job.get(key)]
        if other:
            raise TargetError(
                f"{self.path}: holds checkpoints of another run; what differs is"
                f" {_differences(other, found)}: go on with that, name another --output-dir, or"
                " begin anew with --no-resume"
            )

    def _sweep(self) -> None:
        """Removes what a kill cut short, and checkpoints that have a successor."""
        last = self._last()
        for path in self.path.iterdir():
            is_old = _CHECKPOINT.fullmatch(path.name) and path != last
            if is_old or path.suffix == ".new" or path == self.model:
                is_folder = path.is_dir() and not path.is_symlink()
                shutil.rmtree(path) if is_folder else path.unlink()

    def _last(self) -> Path | None:
        found = [p for p in self.path.iterdir() if _CHECKPOINT.fullmatch(p.name)]
        return max(found, key=lambda path: int(path.name.rpartition("-")[2]), default=None)

    def checkpoint(self, step: int) -> Path:
        """The folder of the state after `step` steps. For all processes."""
        return self.path / f"checkpoint-{step:06}"

    def new_checkpoint(self, step: int) -> Path:
        """Where that is written before it is `keep`t. For all processes."""
        return self.path / f"{self.checkpoint(step).name}.new"

    def clear(self, folder: Path) -> None:
        """Makes an empty folder for a new checkpoint."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()

    def keep(self, progress: Progress) -> None:
        """Gives a checkpoint that is written its name, and removes those before it."""
        new = self.new_checkpoint(progress.step)
        write_bytes(new / _PROGRESS, json_bytes(asdict(progress)))
        sync_tree(new)
        with held_signals():  # which say what was reached
            new.rename(self.checkpoint(progress.step))
            self.reached = progress.step
        sync_folder(self.path)
        self._sweep()

    def remember(self, name: str, value: dict[str, Any]) -> None:
        """Keeps a small document."""
        path = self.path / f"{name}.json"
        new = path.with_suffix(".new")
        new.unlink(missing_ok=True)
        write_bytes(new, json_bytes(value))
        new.replace(path)

    def recall(self, name: str) -> dict[str, Any] | None:
        """What was kept under that name."""
        path = self.path / f"{name}.json"
        return read_json(path) if path.is_file() else None

    def commit(self) -> None:
        """Gives the model its final name, and removes everything else. Raises OSError, and
        WriteError if it has the name, but the disk does not say that it is kept."""
        sync_tree(self.model)
        if self.target.exists():
            self.target.rmdir()  # an empty one: anything else was refused, and is an error here
        with held_signals():
            self.model.rename(self.target)
            self.is_done = True
            try:
                sync_folder(self.target.parent)
            except OSError as error:
                raise unconfirmed(self.target, error) from error
            self.discard()

    def discard(self) -> None:
        """Removes the folder."""
        with held_signals():
            remove_folder(self.path)


def sync_tree(folder: Path) -> None:
    """All files in `folder` on the disk, with the permissions that the umask gives."""
    mask = os.umask(0)
    os.umask(mask)
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            path.chmod(0o666 & ~mask)  # safetensors leaves 0600
            with path.open("rb+") as file:
                os.fsync(file.fileno())
        else:
            sync_folder(path)
    sync_folder(folder)


@contextmanager
def saving(path: Path) -> Iterator[None]:
    """A failure to write inside becomes a WriteError; earlier checkpoints stay."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise WriteError(f"{path}: cannot be written: {error}; earlier checkpoints stay") from error


def _read_progress(folder: Path) -> Progress:
    try:
        document = read_json(folder / _PROGRESS)
        return Progress(
            step=int(document["step"]),
            seconds=float(document["seconds"]),
            history=tuple(dict(entry) for entry in document["history"]),
            pending=tuple(float(loss) for loss in document["pending"]),
        )
    except (HeadcountError, KeyError, TypeError, ValueError) as error:
        raise TargetError(
            f"{folder / _PROGRESS}: is damaged: begin anew with --no-resume"
        ) from error


def _differences(keys: list[str], found: dict[str, Any]) -> str:
    short = (int, float, str, bool, type(None))
    shown = [
        f"{key} (there {found[key]})"
        if key in found and isinstance(found[key], short) and len(str(found[key])) < 20
        else key
        for key in keys
    ]
    return ", ".join(shown)
