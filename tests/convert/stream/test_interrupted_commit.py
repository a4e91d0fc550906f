"""A signal that comes right after a rename, before anything else could note it: the target is the
old model or the new one, whole, and nothing else is left."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conversions import contents, run
from headcount.convert.stream import work_folder
from headcount.running.signals import exit_cleanly, on_signals

pytestmark = pytest.mark.needs_convert
MakeFolder = Callable[..., Path]


@pytest.fixture
def stop_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """stop_after(what): a SIGTERM once what replaces a target has done `what`."""

    def prepare(what: str) -> None:
        rename, sync, exchange = Path.rename, work_folder.sync_folder, work_folder.exchange

        def renamed(self: Path, target: Path) -> Path:
            result = rename(self, target)
            moved = {"old": Path(target).name, "model": self.name}
            if moved.get(what) == what:
                os.kill(os.getpid(), signal.SIGTERM)
            return result

        def synced(folder: Path) -> None:
            sync(folder)
            if what == "synced" and folder == tmp_path.resolve():
                os.kill(os.getpid(), signal.SIGTERM)

        def exchanged(one: Path, other: Path) -> bool:
            if what in ("old", "model"):
                return False
            done = exchange(one, other)
            if what == "exchanged" and done:
                os.kill(os.getpid(), signal.SIGTERM)
            return done

        monkeypatch.setattr(Path, "rename", renamed)
        monkeypatch.setattr(work_folder, "exchange", exchanged)
        monkeypatch.setattr(work_folder, "sync_folder", synced)

    return prepare


@pytest.mark.parametrize(
    ("replacing", "what"),
    [
        *((True, what) for what in ("old", "model", "exchanged", "synced")),
        *((False, what) for what in ("model", "synced")),
    ],
)
def test_a_signal_right_after_a_rename_loses_no_model(
    grouped: MakeFolder,
    tmp_path: Path,
    stop_after: Callable[[str], None],
    replacing: bool,
    what: str,
) -> None:
    target = tmp_path / "out"
    options: dict[str, Any] = {"overwrite": True} if replacing else {}
    before = contents(run(grouped("llama", 12, 4), target, 1).target) if replacing else None
    stop_after(what)
    with pytest.raises(SystemExit) as stopped, on_signals(exit_cleanly):
        run(grouped("llama", 12, 4), target, 2, **options)
    assert stopped.value.code == 143
    assert [path.name for path in tmp_path.iterdir()] == (["out"] if replacing else [])
    if before is not None:
        assert contents(target) == before
