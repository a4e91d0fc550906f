"""Targets that no finished folder can become: refused before any work, with another name."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conversions import run
from headcount.convert.plan import mount_points
from headcount.convert.plan.errors import TargetError
from headcount.convert.plan.mount_points import is_mount_point
from headcount.convert.plan.target import SLACK_FILES, check_space, check_target
from headcount.model.errors import WriteError

pytestmark = pytest.mark.needs_convert
MakeFolder = Callable[..., Path]


@pytest.fixture
def model(grouped: MakeFolder) -> Path:
    return grouped("llama", 12, 4)


def refused(model: Path, target: Path, kind: type[Exception] = TargetError) -> str:
    """The message; nothing lies beside the target afterwards that did not before."""
    beside = target.parent if target.parent.is_dir() else Path()
    before = sorted(beside.iterdir())
    with pytest.raises(kind) as error:
        run(model, target)
    assert sorted(beside.iterdir()) == before
    return str(error.value)


def test_a_mount_point_is_refused_and_a_folder_inside_is_named(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out"
    target.mkdir()
    plain = os.lstat

    def other_device(path: Any, **options: Any) -> os.stat_result:
        found = plain(path, **options)
        if os.fspath(path) != os.fspath(target):
            return found
        return os.stat_result((*found[:2], found.st_dev + 1, *found[3:]))

    monkeypatch.setattr("os.lstat", other_device)
    assert "is a mount point, whose place" in (said := refused(model, target))
    assert said.endswith(f"name a folder inside it, such as {target / 'model'}")
    assert run(model, target / "model").target.is_dir()


def test_folders_mounted_from_the_same_file_system_are_in_a_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bind mount has the device of its parent; blanks and the like are escaped there."""
    folder = tmp_path / "with a blank"
    folder.mkdir()
    listed = str(folder).replace(" ", r"\040")
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"25 1 8:1 / / rw - ext4 /dev/a rw\n26 25 8:1 /x {listed} rw - ext4 a rw\n\n")
    assert not is_mount_point(folder)
    monkeypatch.setattr(mount_points, "_MOUNTS", mounts)
    assert is_mount_point(folder)
    assert not is_mount_point(tmp_path)
    monkeypatch.setattr(mount_points, "_MOUNTS", tmp_path / "none")
    assert not is_mount_point(folder)


CONVERT = (sys.executable, "-m", "headcount", "convert")
MOUNTED = """
set -e
mount -t tmpfs -o size=2m,nr_inodes={inodes} tmpfs "$1"
shift
exec "$@"
"""


def mounted(place: Path, *words: object, inodes: int = 0) -> "subprocess.CompletedProcess[str]":
    """Runs a command where a small file system of its own is mounted at `place`."""
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-rm", "true"]).returncode:
        pytest.skip("no mount may be made here")
    script = MOUNTED.format(inodes=inodes)
    command = ["unshare", "-rm", "sh", "-c", script, "sh", place, *words]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if "mount:" in done.stderr:
        pytest.skip(f"no mount may be made here: {done.stderr.strip()}")
    return done


@pytest.mark.slow
def test_a_real_mount_point(model: Path, tmp_path: Path) -> None:
    """As `docker run -v out:/out`; in a folder inside it the conversion is made, and its space is
    that of the mounted file system."""
    place = tmp_path / "out"
    place.mkdir()
    done = mounted(place, *CONVERT, model, place, "--kv-heads", 2)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "is a mount point" in done.stderr and f"such as {place / 'model'}" in done.stderr
    inside = place / "model"
    both = 'shift; "$@" && ls -A "$0"'
    done = mounted(place, "sh", "-c", both, place, "", *CONVERT, model, inside, "--kv-heads", 2)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("\nmodel\n")
    large = tmp_path / "large"
    shutil.copytree(model, large)
    (large / "tokenizer.model").write_bytes(bytes(2**20))
    done = mounted(place, *CONVERT, large, inside, "--kv-heads", 2)
    assert done.returncode == 3
    assert f"{place}: " in done.stderr and "are needed" in done.stderr


@pytest.mark.slow
def test_a_file_system_without_room_for_more_files(model: Path, tmp_path: Path) -> None:
    place = tmp_path / "small"
    place.mkdir()
    done = mounted(place, *CONVERT, model, place / "out", "--kv-heads", 2, inodes=9)
    assert done.returncode == 3
    assert f"{place}: " in done.stderr and "has room for 8 more (inodes)" in done.stderr


@pytest.mark.skipif(not hasattr(os, "statvfs"), reason="this system does not tell")
@pytest.mark.parametrize(
    ("all_files", "free", "fits"), [(100, 20, True), (100, 19, False), (0, 0, True)]
)
def test_files_are_counted_where_their_number_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, all_files: int, free: int, fits: bool
) -> None:
    found = [*os.statvfs(tmp_path)]
    found[5:8] = [all_files, free, free]
    monkeypatch.setattr("os.statvfs", lambda path: os.statvfs_result(found))
    monkeypatch.setattr("shutil.disk_usage", lambda path: shutil._ntuple_diskusage(9, 0, 2**40))
    assert SLACK_FILES == 16
    if fits:
        check_space(tmp_path / "out", 1, 4)
        return
    with pytest.raises(WriteError, match=r"20 files are to be made.*19 more"):
        check_space(tmp_path / "out", 1, 4)


def test_the_current_folder_is_not_taken_away_from_under_a_shell(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for target in (Path(), Path("../here"), tmp_path / "here"):
        assert "is the current folder" in refused(model, target)
    assert run(model, Path("model")).target.is_dir()


def test_names_that_lead_nowhere(model: Path, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("pool")
    (tmp_path / "pool").symlink_to("loop")
    (tmp_path / "file").touch()
    (tmp_path / "full" / "of").mkdir(parents=True)
    for name, words in {
        "loop": "is a link; name the folder to make",
        "loop/out": "loop: is not a folder: name another place",
        "loop/in/out": "no such folder: make it first",
        "file/out": "file: is not a folder: name another place",
        "file": "exists and is not a folder",
        "none/out": "none: no such folder: make it first",
        "full/none/..": f"means {tmp_path / 'full'}, which exists",
        "n\0l": "null",
        "x" * 256: "File name too long; name another folder",
        "x" * 240: "File name too long; name another folder",
    }.items():
        assert words in refused(model, tmp_path / name), name


def test_a_name_may_be_as_long_as_what_lies_beside_it_allows(model: Path, tmp_path: Path) -> None:
    target = tmp_path / ("x" * 180)
    assert run(model, target).target.is_dir()
    assert os.listdir(tmp_path) == [target.name]  # noqa: PTH208


def test_a_link_to_another_file_system_is_refused_like_any(model: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "there")
    with pytest.raises(TargetError, match="is a link"):
        check_target(model, tmp_path / "out")
