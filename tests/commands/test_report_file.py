"""`-o FILE`, whatever FILE is: whole, or as it was, and never waited for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headcount.cli import main
from headcount.commands.output import report_file
from headcount.commands.output.report_path import check_report_path
from headcount.model.errors import HeadcountError

HEADCOUNT = (sys.executable, "-c", "from headcount.cli import main; main(prog_name='headcount')")


def audit(output: object) -> Result:
    return CliRunner().invoke(main, ["audit", "gpt2", "-o", str(output)])


@pytest.fixture
def wanted(tmp_path: Path) -> str:
    """What is printed without the option."""
    return CliRunner().invoke(main, ["audit", "gpt2"]).stdout


@pytest.mark.skipif(os.name == "nt", reason="Windows has other permissions")
def test_a_file_is_replaced_and_keeps_its_permissions(tmp_path: Path, wanted: str) -> None:
    path = tmp_path / "report"
    path.write_text("an older one")
    path.chmod(0o640)
    assert audit(path).exit_code == 0
    assert path.read_text() == wanted
    assert path.stat().st_mode & 0o777 == 0o640
    assert audit(tmp_path / "new").exit_code == 0
    mask = os.umask(0)
    os.umask(mask)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o666 & ~mask
    assert sorted(p.name for p in tmp_path.iterdir()) == ["new", "report"]


@pytest.mark.parametrize("failing", ["replace", "chmod"])
def test_a_file_that_cannot_be_written_keeps_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "report"
    path.write_text("an older one")
    monkeypatch.setattr(Path, failing, fail)
    result = audit(path)
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr == f"Error: {path}: cannot be written: No space left on device\n"
    assert path.read_text() == "an older one"
    assert list(tmp_path.iterdir()) == [path]


def test_links_and_further_names_stay(tmp_path: Path, wanted: str) -> None:
    (tmp_path / "there").write_text("older")
    (tmp_path / "link").symlink_to("there")
    (tmp_path / "dangling").symlink_to("made")
    for name in ("link", "dangling"):
        assert audit(tmp_path / name).exit_code == 0
        assert (tmp_path / name).is_symlink()
    assert (tmp_path / "there").read_text() == (tmp_path / "made").read_text() == wanted
    (tmp_path / "twin").hardlink_to(tmp_path / "there")
    (tmp_path / "there").write_text("older")
    assert audit(tmp_path / "twin").exit_code == 0
    assert (tmp_path / "there").read_text() == wanted


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no FIFOs here")
def test_a_pipe_that_nobody_reads_is_not_waited_for(tmp_path: Path, wanted: str) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    result = audit(path)
    assert result.exit_code == 3
    assert result.stderr == f"Error: {path}: is a pipe that nobody reads: start its reader first\n"
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert audit(path).exit_code == 0
        assert os.read(reader, 2**20).decode() == wanted
    finally:
        os.close(reader)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_devices(tmp_path: Path, wanted: str) -> None:
    assert audit("/dev/null").exit_code == 0
    full = audit("/dev/full")
    assert (full.exit_code, full.stderr.count("\n")) == (3, 1)
    assert "/dev/full: cannot be written: No space left on device" in full.stderr
    done = subprocess.run(
        [*HEADCOUNT, "audit", "gpt2", "-o", "/dev/stdout"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, wanted, "")


def test_names_that_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("pool")
    (tmp_path / "pool").symlink_to("loop")
    (tmp_path / "lost").symlink_to("none/report")
    (tmp_path / "file").touch()
    for name, words in {
        "loop": "is a link that leads nowhere",
        "loop/report": "there is no folder",
        "lost": "is a link that leads nowhere",
        "file/report": "there is no folder",
        "none/report": "there is no folder",
        "": "is a folder",
        "x" * 256: "File name too long",
    }.items():
        with pytest.raises(HeadcountError, match=words):  # before long work
            check_report_path(tmp_path / name, [])
        result = audit(tmp_path / name)
        assert (result.exit_code, result.stderr.count("\n")) == (3, 1), name
        assert "cannot be written: " in result.stderr, name


@pytest.mark.skipif(os.name == "nt", reason="Windows has other permissions")
def test_a_file_in_a_folder_that_may_not_be_changed_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: str
) -> None:
    path = tmp_path / "report"
    path.write_text("older")
    plain = os.access
    monkeypatch.setattr("os.access", lambda p, mode: Path(p) != tmp_path and plain(p, mode))
    monkeypatch.setattr(report_file, "_replace", None)
    assert audit(path).exit_code == 0
    assert path.read_text() == wanted
