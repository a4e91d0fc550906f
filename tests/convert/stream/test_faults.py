"""What goes wrong while converting: no output, no litter, the source as it was, the right error."""

import dataclasses
import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from conversions import contents, run
from headcount.convert import conversion
from headcount.convert.conversion import apply_plan
from headcount.convert.plan.errors import (
    BadValuesError,
    SelfCheckError,
    TargetError,
)
from headcount.convert.plan.planner import plan_conversion
from headcount.convert.plan.request import ConversionRequest
from headcount.convert.stream.work_folder import WorkFolder
from headcount.model.errors import HeadcountError, SourceChangedError, WriteError

pytestmark = pytest.mark.needs_convert


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
@pytest.mark.parametrize("after", [0, 3, 12])
def test_a_failing_disk_leaves_nothing(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, after: int
) -> None:
    """The k-th write fails: a WriteError (exit 3), no output, no work folder."""
    real, calls = os.write, 0

    def write(descriptor: int, data: Any) -> int:
        nonlocal calls
        calls += 1
        if calls > after:
            raise OSError(number, os.strerror(number))
        return real(descriptor, data)

    plan = plan_conversion(
        ConversionRequest(source=source, target=tmp_path / "out", num_key_value_heads=2)
    )
    monkeypatch.delattr(os, "copy_file_range", raising=False)
    monkeypatch.setattr(os, "write", write)
    with pytest.raises(WriteError, match="cannot be written") as caught:
        apply_plan(plan, progress=False)
    monkeypatch.undo()
    assert caught.value.exit_code == 3
    assert (number in (errno.ENOSPC, errno.EDQUOT)) == ("are free" in str(caught.value))
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("name", ["fsync", "rename"])
def test_a_failing_fsync_or_rename_leaves_nothing(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def fail(*arguments: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, name, fail)
    with pytest.raises(WriteError):
        run(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("unchanged")
def test_ctrl_c_leaves_nothing(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*arguments: Any) -> None:
        assert [path for path in tmp_path.iterdir() if ".out.partial-" in path.name]
        raise KeyboardInterrupt

    monkeypatch.setattr(conversion, "verify_output", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("value", "words"), [(float("nan"), "NaN"), (float("inf"), "NaN or inf")])
def test_bad_values_leave_nothing(source: Path, tmp_path: Path, value: float, words: str) -> None:
    file, name = source / "model.safetensors", "model.layers.1.self_attn.v_proj.weight"
    tensors = load_file(file)
    tensors[name][3, 3] = value
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(BadValuesError, match=words) as caught:
        run(source, tmp_path / "out")
    assert name in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_bad_values_leave_nothing_where_heads_are_chosen(source: Path, tmp_path: Path) -> None:
    """The medoid looks at all heads before it pools any."""
    file, name = source / "model.safetensors", "model.layers.1.self_attn.v_proj.weight"
    tensors = load_file(file)
    tensors[name][3, 3] = float("nan")
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(BadValuesError, match="NaN") as caught:
        run(source, tmp_path / "out", method="medoid")
    assert name in str(caught.value)
    assert str(file) in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_bad_values_in_other_tensors_are_copied(source: Path, tmp_path: Path) -> None:
    file, name = source / "model.safetensors", "model.layers.1.mlp.up_proj.weight"
    tensors = load_file(file)
    tensors[name][3, 3] = float("nan")
    save_file(tensors, file, metadata={"format": "pt"})
    run(source, tmp_path / "out")
    assert load_file(tmp_path / "out" / "model.safetensors")[name].isnan().sum() == 1


def test_a_source_that_changes_meanwhile_is_noticed(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def touch(*arguments: Any) -> None:
        os.utime(source / "model.safetensors", ns=(1, 1))

    monkeypatch.setattr(conversion, "copy_side_file", touch)
    with pytest.raises(SourceChangedError, match=r"model\.safetensors: changed"):
        run(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_side_file_that_changes_meanwhile_is_noticed(source: Path, tmp_path: Path) -> None:
    plan = plan_conversion(
        ConversionRequest(source=source, target=tmp_path / "out", num_key_value_heads=2)
    )
    (source / "README.md").write_text("longer than it was before")
    with pytest.raises(SourceChangedError, match=r"README\.md: changed"):
        apply_plan(plan, progress=False)
    assert not (tmp_path / "out").exists()


def test_an_index_that_changes_meanwhile_is_noticed(sharded: Path, tmp_path: Path) -> None:
    plan = plan_conversion(
        ConversionRequest(source=sharded, target=tmp_path / "out", num_key_value_heads=2)
    )
    os.utime(sharded / "model.safetensors.index.json", ns=(1, 1))
    with pytest.raises(SourceChangedError, match=r"index\.json: changed"):
        apply_plan(plan, progress=False)


def test_what_a_killed_run_left_is_removed(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only folders of our pattern, of this host, whose process is gone."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    running = WorkFolder(tmp_path / "out", "job").path
    _, start, made_by = running.name.rsplit("-", 2)
    dead, reused, foreign, other = (
        running.with_name(f".out.partial-{end}")
        for end in (
            f"{ended.pid}-0-{made_by}",
            f"{os.getpid()}-{int(start) + 1}-{made_by}",  # its number is a younger process's now
            f"{ended.pid}-0-{'0' * 16}",
            f"{ended.pid}-0-mine",
        )
    )
    for folder in (running, dead, reused, foreign, other):
        folder.mkdir()
        (folder / "file").write_text("content")
    run(source, tmp_path / "out")
    assert [folder.exists() for folder in (running, foreign, other)] == [True] * 3
    assert not dead.exists()
    assert reused.exists() == (int(start) == 0)  # a system that does not tell when one started
    assert capsys.readouterr().err.count("which a stopped run had left") == 2 - reused.exists()


def test_a_target_that_appears_meanwhile_is_kept(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rival(*arguments: Any) -> None:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "theirs").write_text("theirs")

    monkeypatch.setattr(conversion, "verify_output", rival)
    with pytest.raises(TargetError, match="meanwhile"):
        run(source, tmp_path / "out")
    assert contents(tmp_path / "out") == {"theirs": b"theirs"}


def test_an_output_with_a_wrong_config_never_gets_its_name(source: Path, tmp_path: Path) -> None:
    plan = plan_conversion(
        ConversionRequest(source=source, target=tmp_path / "out", num_key_value_heads=2)
    )
    wrong = dataclasses.replace(plan, config={**plan.config, "num_key_value_heads": 4})
    with pytest.raises(SelfCheckError, match="H101"):
        apply_plan(wrong, progress=False)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_source_that_fails_when_it_is_read_is_one_line(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Config and headers, which the audit reads and the plan hashes."""
    plain, opened = os.fdopen, [0]

    class Failing:
        def __init__(self, file: Any) -> None:
            self.file = file

        def __enter__(self) -> "Failing":
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

        def fileno(self) -> int:
            return int(self.file.fileno())

        def read(self, *_: int) -> bytes:
            raise OSError(5, "Input/output error")

    def failing(descriptor: int, *arguments: Any, **options: Any) -> Any:
        file = plain(descriptor, *arguments, **options)
        if Path(f"/proc/self/fd/{descriptor}").resolve().name != name:
            return file
        opened[0] += 1
        return file if opened[0] <= first else Failing(file)

    request = ConversionRequest(source=source, target=tmp_path / "out", num_key_value_heads=2)
    first = 10**9
    monkeypatch.setattr("os.fdopen", failing)
    plan_conversion(request)
    whole = opened[0]
    if not whole:
        pytest.skip("this system does not tell what a descriptor is")
    assert whole == 1  # what is hashed is what was read: there is no second reading
    for after in range(whole):
        opened[0], first = 0, after
        with pytest.raises(HeadcountError, match=rf"{name}: cannot be read: Input/output error"):
            plan_conversion(request)
