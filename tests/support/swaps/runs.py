"""Conversions of a source of which a file is replaced at some moment, and what came of each."""

import random
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

from conversions import contents, run
from headcount.model.errors import HeadcountError
from headcount.sources.safetensors import read_header

from .changes import (
    Change,
    overwriting,
    pointing,
    replacing,
    with_another_config,
    with_another_index,
    with_another_token,
    with_its_tensors_moved,
)
from .steps import Steps, later

NAME = "model"  # of every source, so that records are alike
INDEX, TOKENIZER = "model.safetensors.index.json", "tokenizer.json"
OLD = 0.02  # seconds: no tick of a file system's clock is longer, see `headcount.sources.identity`
# What is replaced by a rename, but for "in place"; the last four are undone some time later.
KINDS = (
    *("shard", "config", "index", "tokenizer", "in place", "folder"),
    *("shard and back", "tokenizer and back", "folder and back", "folder itself and back"),
)


@dataclass(frozen=True, kw_only=True)
class Swap:
    """`source` with what changes it, and afterwards undoes that, if anything does; `mixture` are
    the files that are the other state's in between."""

    source: Path
    change: Change
    undo: Change | None = None
    mixture: tuple[str, ...]


def another_state(one: Path, other: Path) -> None:
    """A folder in which no file is as in `one`, and any file fits to those of `one`."""
    shutil.copytree(one, other)
    for path in one.glob("*.safetensors"):
        with_its_tensors_moved(path, other / path.name)
    with_another_config(one / "config.json", other / "config.json")
    with_another_index(one / INDEX, other / INDEX)
    with_another_token(one / TOKENIZER, other / TOKENIZER)


class SwappedRuns:
    """Runs with the same `options` on the model in the folder `one`, in a folder of their own."""

    def __init__(self, one: Path, place: Path, **options: Any) -> None:
        self.one, self.other, self.work = one, place / "other", place / "work"
        self._options = options
        self._wanted: dict[tuple[str, ...], dict[str, bytes]] = {}
        another_state(one, self.other)

    def steps(self, kind: str) -> int:
        """How many a run makes that nothing disturbs."""
        swap = self.swap(kind)
        steps = Steps(swap.source, {})
        with steps.watched():
            self._convert(swap.source)
        return steps.count

    def at_step(self, kind: str, step: int, until: int) -> str:
        """What comes of a run with the change before `step`, undone before `until`."""
        swap = self._ready(kind)
        due = {step: swap.change} | ({until: swap.undo} if swap.undo else {})
        with Steps(swap.source, due).watched():
            return self._ended(swap)

    def at_random(self, kind: str, drawn: random.Random, longest: float) -> str:
        """The same with the change within the `longest` seconds that a run takes."""
        swap = self._ready(kind)
        changes = [(drawn.uniform(0, longest), swap.change)]
        if swap.undo is not None:
            changes.append((drawn.uniform(0, longest / 3), swap.undo))
        return self._ended(swap, later(*changes))

    def swap(self, kind: str) -> Swap:
        """A fresh source for one run."""
        folder = self._fresh()
        if kind == "folder itself and back":
            return self._folder_itself(folder)
        if kind.startswith("folder"):
            return self._of_folder(folder, back=kind == "folder and back")
        names = {"config": "config.json", "index": INDEX, "tokenizer": TOKENIZER}
        name = names.get(kind.split()[0]) or self._moved_shard()
        path, new = folder / name, self.other / name
        if kind.endswith("and back"):
            return self._to_and_fro(folder, path, replacing(path, new))
        how = overwriting if kind == "in place" else replacing
        return Swap(source=folder, change=how(path, new), mixture=(name,))

    def _of_folder(self, folder: Path, *, back: bool) -> Swap:
        link, other = folder.with_name("link"), folder.with_name("other")
        shutil.copytree(self.other, other)
        link.symlink_to(folder)
        return Swap(
            source=link,
            change=pointing(link, other),
            undo=pointing(link, folder) if back else None,
            mixture=self._every(),
        )

    def _folder_itself(self, folder: Path) -> Swap:
        other, aside = folder.with_name("other"), folder.with_name("aside")
        shutil.copytree(self.other, other)

        def change() -> None:
            folder.rename(aside)
            other.rename(folder)

        def undo() -> None:
            folder.rename(other)
            aside.rename(folder)

        return Swap(source=folder, change=change, undo=undo, mixture=self._every())

    def _every(self) -> tuple[str, ...]:
        return tuple(path.name for path in self.one.iterdir())

    def _to_and_fro(self, folder: Path, path: Path, change: Change) -> Swap:
        aside = self.work / "aside"

        def keep_and_change() -> None:
            path.rename(aside)
            change()

        def undo() -> None:
            aside.rename(path)

        return Swap(source=folder, change=keep_and_change, undo=undo, mixture=(path.name,))

    def _moved_shard(self) -> str:
        """One with tensors at other places in the other state."""
        for path in sorted(self.one.glob("*.safetensors")):
            if read_header(path).tensors != read_header(self.other / path.name).tensors:
                return path.name
        raise AssertionError("no tensor was moved")

    def _fresh(self, mixture: Sequence[str] = ()) -> Path:
        """A copy of the first state with some files of the other, not younger than a tick."""
        shutil.rmtree(self.work, ignore_errors=True)
        folder = Path(shutil.copytree(self.one, self.work / NAME))
        for name in mixture:
            shutil.copyfile(self.other / name, folder / name)
        time.sleep(OLD)
        return folder

    def _ready(self, kind: str) -> Swap:
        """A swap after which the output is another one: made before, since folders are removed."""
        assert self._output_of(()) != self._output_of(self.swap(kind).mixture)
        return self.swap(kind)

    def _output_of(self, mixture: tuple[str, ...]) -> dict[str, bytes]:
        """What is written of such a state."""
        if mixture not in self._wanted:
            self._convert(self._fresh(mixture))
            self._wanted[mixture] = contents(self.work / "out")
        return self._wanted[mixture]

    def _convert(self, source: Path) -> None:
        run(source, self.work / "out", source_name=NAME, **self._options)

    def _ended(self, swap: Swap, changing: Thread | None = None) -> str:
        """Converts; `failed`, `one` or `other` by what came of it. Anything else is an error."""
        failed = False
        try:
            self._convert(swap.source)
        except HeadcountError:
            failed = True
        if changing is not None:
            changing.join()
        if failed:
            left = [path.name for path in self.work.iterdir() if "out" in path.name]
            assert not left, left
            return "failed"
        found = contents(self.work / "out")
        if found == self._output_of(()):
            return "one"
        assert found == self._output_of(swap.mixture), "the output is of no state of the source"
        return "other"
