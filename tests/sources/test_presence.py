"""A disk that fails is no sign that a file is missing."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from checkpoints import LLAMA_CONFIG, llama_shapes, write_sharded
from headcount.audit import audit_model
from headcount.model.errors import HeadcountError
from headcount.sources.presence import is_there


def test_what_is_there_and_what_is_not(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    assert is_there(tmp_path / "file")
    names = ("link", "loop", "none", "file/below", "x" * 300)
    assert not any(is_there(tmp_path / name) for name in names)
    assert is_there(tmp_path / "link", or_its_link=True)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> str:
    """The end of the name of files that cannot be looked at: a shard, and a file that quantised
    models have."""
    name, stat = "model-00002-of-00002.safetensors", os.stat

    def fails(path: Any, **options: Any) -> os.stat_result:
        if str(path).endswith(name):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", fails)
    return name


def test_a_shard_that_cannot_be_looked_at_is_not_missing(tmp_path: Path, failing: str) -> None:
    folder = write_sharded(tmp_path / "model", LLAMA_CONFIG, llama_shapes())
    with pytest.raises(HeadcountError, match=rf"{failing}: cannot be read: Input/output error"):
        audit_model(str(folder))


def test_a_side_file_on_a_failing_disk_is_an_error_and_a_broken_one_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_sharded(tmp_path / "model", LLAMA_CONFIG, llama_shapes())
    (folder / "generation_config.json").write_text("{")
    assert "H503" in {finding.code for finding in audit_model(str(folder)).findings}
    opened = os.open

    def fails(path: Any, *options: Any, **more: Any) -> int:
        if str(path).endswith("generation_config.json"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return opened(path, *options, **more)

    monkeypatch.setattr(os, "open", fails)
    with pytest.raises(HeadcountError, match=r"generation_config\.json: cannot be read"):
        audit_model(str(folder))
