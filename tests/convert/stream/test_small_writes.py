"""Systems that take a part of what is written at a time, and renames that stop working."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from conversions import contents, run
from headcount.convert.stream import work_folder
from headcount.convert.stream.lock import TargetLock
from headcount.model.errors import WriteError

pytestmark = pytest.mark.needs_convert


def test_a_byte_at_a_time_gives_the_same(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(source, tmp_path / "whole")
    write = os.write

    def slow(descriptor: int, data: Any) -> int:
        few = 1 if len(data) < 2000 else len(data) // 2
        return write(descriptor, bytes(data[:few]))

    monkeypatch.setattr(os, "write", slow)
    with TargetLock(tmp_path / "other"):
        assert json.loads((tmp_path / ".other.lock").read_bytes())["pid"] == os.getpid()
    run(source, tmp_path / "out")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_an_old_model_that_cannot_be_put_back_is_kept(
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Where two names cannot be exchanged: once the old model is aside, no rename works any more,
    but removals do."""
    run(source, tmp_path / "out", 1)
    old = contents(tmp_path / "out")
    rename = Path.rename

    def fails(self: Path, target: Path) -> Path:
        if self.name in ("model", "old"):
            raise OSError(5, "Input/output error")
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", fails)
        patch.setattr(work_folder, "exchange", lambda *_: False)
        with pytest.raises(WriteError):
            run(source, tmp_path / "out", 2, overwrite=True)
    (kept,) = tmp_path.glob(".out.partial-*")
    assert contents(kept / "old") == old
    assert f"{kept}: holds what" in capsys.readouterr().err
