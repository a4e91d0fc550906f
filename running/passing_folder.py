"""Folders that last no longer than a piece of work, whatever ends it, and how they are removed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from .signals import LAST_ACTS, held_signals


@contextmanager
def passing_folder(path: Path, mode: int = 0o777) -> Iterator[Path]:
    """Makes the folder `path`, a name that nobody else takes, for as long as the context lasts. A
    signal that ends the process at once removes it, too. Raises OSError."""
    act = partial(remove_folder, path)
    LAST_ACTS.append(act)
    try:
        path.mkdir(mode)
        yield path
    finally:
        with held_signals():
            remove_folder(path)
            LAST_ACTS.remove(act)


def remove_folder(path: Path) -> bool:
    """All of it, without following a link; whether it is gone. Once more if that fails: a disk that
    fails once may not fail twice, and a folder may be read-only."""
    import shutil

    for _ in range(2):
        shutil.rmtree(path, ignore_errors=True)
        if not os.path.lexists(path):
            return True
        _make_writable(path)
    return False


def _make_writable(folder: Path) -> None:
    with suppress(OSError):
        if folder.is_symlink() or not folder.is_dir():
            return
        folder.chmod(0o700)
        for inner in folder.iterdir():
            _make_writable(inner)
