"""What lies beside a target is not always what a killed run left there: damaged, planted, or
somebody else's, it costs no more than a second writing, and nothing outside is touched."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from conversions import contents, run
from headcount.convert.plan.errors import TargetError
from headcount.convert.plan.leftovers import reclaimable
from headcount.convert.plan.process import this_process
from headcount.convert.stream import work_folder
from headcount.convert.stream.journal import FinishedFile, Journal, read_journal
from headcount.convert.stream.lock import TargetLock
from headcount.running.passing_folder import remove_folder

pytestmark = pytest.mark.needs_convert
Damage = Callable[[Path, Path], Any]


@pytest.fixture(scope="session")
def dead() -> int:
    """The number of a process that has ended."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "precious.txt").write_text("theirs")
    return folder


@pytest.fixture
def left(sharded: Path, tmp_path: Path, dead: int, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The work folder of a run for tmp_path / "out" that was killed when its shards were done."""

    class KilledError(BaseException):
        pass

    def killed(*arguments: Any) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr("headcount.convert.conversion.write_bytes", killed)  # of the index
        patch.setattr(work_folder, "remove_folder", lambda path: True)
        with pytest.raises(KilledError):
            run(sharded, tmp_path / "out")
    (folder,) = tmp_path.glob(".out.partial-*")
    start = folder.name.rsplit("-", 2)[-1]
    return folder.rename(folder.with_name(f".out.partial-{dead}-0-{start}"))


def edit(*lines: Any) -> Damage:
    """The journal with other lines after its first one."""

    def damage(folder: Path, outside: Path) -> None:
        path = folder / "journal.jsonl"
        first = path.read_text().splitlines()[0]
        path.write_text("\n".join([first, *map(json.dumps, lines), ""]))

    return damage


def edited(**fields: Any) -> Damage:
    """The journal with other fields in what it says of the first file."""

    def damage(folder: Path, outside: Path) -> None:
        path = folder / "journal.jsonl"
        first, second, *rest = path.read_text().splitlines()
        line = json.loads(second)
        line["file"].update(fields)
        path.write_text("\n".join([first, json.dumps(line), *rest, ""]))

    return damage


def replaced(name: str, make: Callable[[Path, Path], Any]) -> Damage:
    def damage(folder: Path, outside: Path) -> None:
        path = folder / name
        if path.is_dir():
            remove_folder(path)
        elif os.path.lexists(path):
            path.unlink()
        make(path, outside)

    return damage


def shard(make: Callable[[Path, Path], Any]) -> Damage:
    def damage(folder: Path, outside: Path) -> None:
        path = sorted((folder / "model").iterdir())[0]
        (outside / path.name).write_bytes(path.read_bytes())
        path.unlink()
        make(path, outside / path.name)

    return damage


def link(path: Path, outside: Path) -> None:
    path.symlink_to(outside)


def read_only(path: Path, outside: Path) -> None:
    path.mkdir()
    (path / "file").touch()
    path.chmod(0o555)


def fifo(path: Path, outside: Path) -> None:
    os.mkfifo(path)


DAMAGES: dict[str, tuple[Damage, bool]] = {
    # What is done to it, and whether the run goes on with what is whole.
    "none": (lambda folder, outside: None, True),
    "journal is a folder": (replaced("journal.jsonl", lambda path, _: path.mkdir()), False),
    "journal is a FIFO": (replaced("journal.jsonl", fifo), False),
    "journal is gone": (lambda folder, _: (folder / "journal.jsonl").unlink(), False),
    "journal is binary": (replaced("journal.jsonl", lambda p, _: p.write_bytes(bytes(999))), False),
    "journal is empty": (replaced("journal.jsonl", lambda path, _: path.touch()), False),
    "journal is deep": (
        replaced("journal.jsonl", lambda p, _: p.write_text("[" * 99999 + "\n")),
        False,
    ),
    "a list": (edit([1, 2], ["file"]), False),
    "numbers": (edit(1, 2.5, None, True, "text"), False),
    "no digest": (
        edit({"file": {"name": "a", "nbytes": 1, "digest": "", "measured": None}}),
        False,
    ),
    "old lines": (edit({"name": "a", "nbytes": 1, "digest": "", "measured": None}), False),
    "another name": (edited(name="../../outside/precious.txt"), False),
    "a number as name": (edited(name=7), False),
    "a text as size": (edited(nbytes="7"), False),
    "other measures": (edited(measured={"errors": [[0, "k", 0.5]]}), False),
    "model is a link": (replaced("model", link), False),
    "model is a file": (replaced("model", lambda path, _: path.touch()), False),
    "rewritten is a link": (replaced("rewritten", link), False),
    "a stray link": (replaced("stray", link), True),
    "a stray link in the model": (replaced("model/stray", link), True),
    "a stray FIFO": (replaced("stray", fifo), True),
    "a stray FIFO in the model": (replaced("model/config.json", fifo), True),
    "a stray folder": (
        replaced("stray", lambda path, _: (path / "in" / "it").mkdir(parents=True)),
        True,
    ),
    "a folder for a file": (replaced("model/config.json", lambda path, _: path.mkdir()), True),
    "a read-only folder": (replaced("stray", read_only), True),
    "a new journal that is a link": (
        replaced("journal.jsonl.new", lambda p, o: p.symlink_to(o / "precious.txt")),
        True,
    ),
    "a shard that is a link": (shard(link), True),
    "a shard that is shared": (shard(lambda path, other: path.hardlink_to(other)), True),
    "a shard that is a folder": (shard(lambda path, _: path.mkdir()), True),
    "a shard that is a FIFO": (shard(fifo), True),
}


@pytest.mark.skipif(os.name == "nt", reason="Windows has no FIFOs")
@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_work_folder_costs_a_second_writing_at_most(
    left: Path,
    sharded: Path,
    outside: Path,
    tmp_path: Path,
    name: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    damage, goes_on = DAMAGES[name]
    run(sharded, tmp_path / "whole")
    damage(left, outside)
    theirs = contents(outside)
    assert reclaimable(tmp_path / "out") >= 0
    run(sharded, tmp_path / "out")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    assert not any(path.is_symlink() for path in (tmp_path / "out").iterdir())
    assert contents(outside) == theirs
    assert not list(tmp_path.glob(".*"))
    assert ("resuming" in capsys.readouterr().err) == goes_on


@pytest.mark.parametrize("has_model", [True, False])
def test_between_two_renames_the_new_model_or_the_old_one_is_brought_back(
    left: Path, sharded: Path, tmp_path: Path, has_model: bool
) -> None:
    run(sharded, tmp_path / "old", 1)
    (tmp_path / "old").rename(left / "old")
    old = contents(left / "old")
    remove_folder(left / "model")
    if has_model:
        run(sharded, tmp_path / "new")
        (tmp_path / "new").rename(left / "model")
    if has_model:
        assert run(sharded, tmp_path / "out").done_before
    else:
        with pytest.raises(TargetError, match="--overwrite"):
            run(sharded, tmp_path / "out")
        assert contents(tmp_path / "out") == old
    assert not list(tmp_path.glob(".*"))


def test_a_journal_gives_back_what_was_kept(tmp_path: Path) -> None:
    files = [
        FinishedFile(
            name=name, nbytes=3, digest="d", measured={"errors": [[0, "k", 1e-17]], 1: [2]}
        )
        for name in ("model.safetensors", "rewritten/00001.safetensors")
    ]
    journal = Journal(tmp_path / "journal", "job", files[:1])
    journal.add(files[1])
    journal.close()
    found = read_journal(tmp_path / "journal", "job")
    assert [file.name for file in found] == [file.name for file in files]
    assert found[1].measured == {"errors": [[0, "k", 1e-17]], "1": [2]}
    assert read_journal(tmp_path / "journal", "other") == ()
    data = (tmp_path / "journal").read_bytes()
    for position in range(data.index(b"\n") + 1, len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1
        (tmp_path / "journal").write_bytes(flipped)
        assert len(read_journal(tmp_path / "journal", "job")) < 2, position


@pytest.mark.skipif(os.name == "nt", reason="Windows has no FIFOs")
@pytest.mark.parametrize("kind", ["folder", "FIFO"])
def test_what_is_no_lock_is_left_where_it_is(source: Path, tmp_path: Path, kind: str) -> None:
    lock = tmp_path / ".out.lock"
    lock.mkdir() if kind == "folder" else os.mkfifo(lock)
    with pytest.raises(TargetError, match=r"\.out\.lock: has the name of a lock, and is none"):
        run(source, tmp_path / "out")
    assert os.path.lexists(lock) and sorted(tmp_path.glob(".*")) == [lock]


@pytest.mark.parametrize(
    "text",
    [
        *("[]", "7", "null", '"text"', "[" * 4000, "\0\xff", "{}", '{"pid": 1}', " " * 9999),
        *(f'{{"pid": {pid}, "start": 0, "host": HOST}}' for pid in ('"1"', 0, -1, 1.5, "null")),
        '{"pid": ME, "start": "0", "host": HOST}',
        '{"pid": ME, "start": 0, "host": 7}',
    ],
)
def test_a_lock_that_names_nobody_is_taken_over(tmp_path: Path, text: str) -> None:
    lock = tmp_path / ".out.lock"
    host = json.dumps(this_process().host)
    lock.write_text(text.replace("HOST", host).replace("ME", str(os.getpid())))
    with TargetLock(tmp_path / "out"):
        assert json.loads(lock.read_text())["pid"] == os.getpid()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("to", ["nowhere", "/dev/zero", "theirs"])
def test_a_lock_that_is_a_link_is_removed_and_not_followed(tmp_path: Path, to: str) -> None:
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / ".out.lock").symlink_to(to)
    with TargetLock(tmp_path / "out"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["theirs"]
    assert (tmp_path / "theirs").read_text() == "theirs"


def test_a_lock_that_may_not_be_read_is_respected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".out.lock").touch()
    plain = os.access
    monkeypatch.setattr("os.access", lambda p, mode: mode != os.R_OK and plain(p, mode))
    with pytest.raises(TargetError, match="another user"), TargetLock(tmp_path / "out"):
        pass
    assert (tmp_path / ".out.lock").exists()


@pytest.mark.skipif(os.name == "nt", reason="Windows has other permissions")
def test_a_read_only_folder_goes_away_for_a_user_who_is_not_root() -> None:
    script = """
import os, shutil, sys
from pathlib import Path
from headcount.running.passing_folder import remove_folder
if os.geteuid() == 0:
    os.setuid(65534)
folder = Path(sys.argv[1], "work")
(folder / "in" / "it").mkdir(parents=True)
(folder / "in" / "it" / "file").touch()
(folder / "in" / "it").chmod(0o500)
(folder / "in").chmod(0o000)
sys.exit(0 if remove_folder(folder) and not folder.exists() else 1)
"""
    with TemporaryDirectory() as place:
        Path(place).chmod(0o777)
        done = subprocess.run([sys.executable, "-c", script, place], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
