"""Two names that change places in one step."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from headcount.convert.stream import exchange as module
from headcount.convert.stream.exchange import exchange


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
        (folder / "name").write_text(folder.name)
    return one, other


def names(folders: tuple[Path, Path]) -> list[str]:
    return [(folder / "name").read_text() for folder in folders]


def test_folders_take_each_others_names(folders: tuple[Path, Path]) -> None:
    """Where the system cannot, nothing is done."""
    inodes = [folder.stat().st_ino for folder in folders]
    done = exchange(*folders)
    assert names(folders) == (["other", "one"] if done else ["one", "other"])
    assert [f.stat().st_ino for f in folders] == (inodes[::-1] if done else inodes)


def fails_with(number: int) -> Any:
    def call(one: bytes, other: bytes) -> int:
        module.ctypes.set_errno(number)
        return -1

    return lambda: call


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM])
def test_a_system_without_such_a_step_is_told(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(module, "_call", fails_with(number))
    assert exchange(*folders) is False
    assert names(folders) == ["one", "other"]


def test_a_step_that_fails_is_an_error(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_call", fails_with(errno.EIO))
    with pytest.raises(OSError, match=os.strerror(errno.EIO)) as failed:
        exchange(*folders)
    assert failed.value.errno == errno.EIO


def test_a_system_without_the_function_is_told(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_call", lambda: None)
    assert exchange(*folders) is False


def test_a_name_that_is_gone_is_an_error(folders: tuple[Path, Path], tmp_path: Path) -> None:
    if exchange(*folders):
        with pytest.raises(FileNotFoundError):
            exchange(folders[0], tmp_path / "none")
