"""Replacing files of a source while something reads it: at a chosen call, or at a random moment.

A step is a call that looks at, lists or opens something in the folder, or reads from one of its
files. The calls of a library in another language (the reader of safetensors) fall between steps.
"""

import builtins
import io
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BY_NAME = ("open", "stat", "lstat", "scandir", "listdir")
BY_DESCRIPTOR = ("preadv", "copy_file_range", "fstat", "read")
Change = Callable[[], None]


class Steps:
    """Counts steps in `folder`, and does what is due before one of them."""

    def __init__(self, folder: Path, due: Mapping[int, Change]) -> None:
        self.count = 0
        self._starts, self._due = {str(folder), os.path.realpath(folder)}, dict(due)
        self._inodes = {path.stat().st_ino for path in folder.iterdir()}
        self._lock = threading.RLock()
        self._inside = False
        self._fstat = os.fstat

    @contextmanager
    def watched(self) -> Iterator["Steps"]:
        plain: dict[tuple[Any, str], Any] = {
            (os, name): getattr(os, name)
            for name in (*BY_NAME, *BY_DESCRIPTOR)
            if hasattr(os, name)
        }
        plain |= {(builtins, "open"): builtins.open, (io, "open"): io.open}
        for (module, name), function in plain.items():
            setattr(module, name, self._wrap(function, self._touches(name)))
        try:
            yield self
        finally:
            for (module, name), function in plain.items():
                setattr(module, name, function)

    def _touches(self, name: str) -> Callable[[Any], bool]:
        return self._is_of_folder if name in BY_DESCRIPTOR else self._is_in_folder

    def _wrap(self, plain: Callable[..., Any], counts: Callable[[Any], bool]) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            if arguments and not self._inside and counts(arguments[0]):
                with self._lock:
                    self._step()
            return plain(*arguments, **options)

        return call

    def _step(self) -> None:
        change = self._due.pop(self.count, None)
        self.count += 1
        if change is not None:
            self._inside = True
            try:
                change()
            finally:
                self._inside = False

    def _is_in_folder(self, name: Any) -> bool:
        if isinstance(name, int):
            return False
        text = os.fsdecode(name)
        return any(text == one or text.startswith(f"{one}{os.sep}") for one in self._starts)

    def _is_of_folder(self, descriptor: int) -> bool:
        return self._fstat(descriptor).st_ino in self._inodes


def later(*changes: tuple[float, Change]) -> threading.Thread:
    """Does one after the other, each after some seconds, in a thread that has begun."""

    def wait() -> None:
        for seconds, change in changes:
            time.sleep(seconds)
            change()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread
