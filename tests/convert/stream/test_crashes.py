"""Killed or failing at any call that changes the disk: the target is whole or absent, the next run
gives the same bytes, and a failure that can be answered leaves nothing."""

import errno
import hashlib
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from conversions import contents
from faulty import FaultyCommand, Ran, faulty_command

pytestmark = pytest.mark.needs_convert
MakeFolder = Callable[..., Path]
SAMPLE = 14  # of the calls of a run, where not all of them are tried
FAULTS = [
    pytest.param("once", errno.ENOSPC, id="full-once"),
    pytest.param("once", errno.EIO, id="broken-once"),
    pytest.param("always", errno.ENOSPC, id="full"),
    pytest.param("always", errno.EIO, id="broken"),
]


@pytest.fixture
def rungs() -> tuple[str, ...]:
    """Options of the runs; with a merge, layers are rewritten first."""
    return ()


RUNGS = [
    pytest.param((), id="mean"),
    pytest.param(("--method", "merge", "--grouping", "similar"), id="merge"),
    pytest.param(("--latent", "1/2"), id="latent"),
]

PRUNE = pytest.param(("--prune-heads", "1/2"), id="prune", marks=pytest.mark.slow)


@pytest.fixture
def converted(
    command: FaultyCommand, sharded: Path, tmp_path: Path, rungs: tuple[str, ...]
) -> dict[str, bytes]:
    """What an undisturbed run writes."""
    (tmp_path / "tokenizer").touch()
    (sharded / "tokenizer.json").write_text('{"model": {"vocab": {"a": 0}}}')
    assert convert(command, sharded, tmp_path / "whole", *rungs).status == 0
    return contents(tmp_path / "whole")


def convert(
    command: FaultyCommand, source: Path, target: Path, *more: object, **fault: object
) -> Ran:
    heads = () if "--latent" in more else ("--kv-heads", 2)
    return command("convert", source, target, *heads, *more, **fault)


def digests(folder: Path) -> dict[str, tuple[str, int]]:
    return {
        path.name: (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in folder.iterdir()
    }


def chosen(calls: int, every: bool) -> list[int]:
    """Numbers of calls: all, or a sample with the first and the last ones."""
    if every:
        return list(range(1, calls + 1))
    step = max(1, calls // (SAMPLE - 4))
    return sorted({1, 2, *range(3, calls - 2, step), calls - 1, calls})


# A copy in the kernel or a removal that fails has a second way; all other calls end the run.
SECOND_WAYS = ("copy_file_range", "unlink", "remove", "rmdir")
EVERY = [False, pytest.param(True, marks=pytest.mark.slow)]


@pytest.mark.parametrize("rungs", [*RUNGS, PRUNE])
@pytest.mark.parametrize("every", EVERY)
def test_a_kill_at_any_call_loses_nothing(
    command: FaultyCommand,
    sharded: Path,
    converted: dict[str, bytes],
    tmp_path: Path,
    every: bool,
    rungs: tuple[str, ...],
) -> None:
    before = digests(sharded)
    calls = convert(command, sharded, tmp_path / "counted", *rungs).calls
    assert calls > 60
    resumed = 0
    for at in chosen(calls, every):
        target = tmp_path / f"out-{at}"
        killed = convert(command, sharded, target, *rungs, fault="kill", at=at)
        assert killed.status == 137, (at, killed)
        assert not target.exists() or contents(target) == converted, at
        again = convert(command, sharded, target, *rungs)
        assert again.status == 0, (at, again)
        assert contents(target) == converted, at
        assert hidden(tmp_path) == [], at
        resumed += "resuming" in again.stderr
    assert resumed > len(chosen(calls, every)) / 3
    assert digests(sharded) == before


@pytest.mark.parametrize("rungs", RUNGS)
@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize(("fault", "number"), FAULTS)
def test_a_failing_call_leaves_nothing(
    command: FaultyCommand,
    sharded: Path,
    converted: dict[str, bytes],
    tmp_path: Path,
    fault: str,
    number: int,
    every: bool,
    rungs: tuple[str, ...],
) -> None:
    before = digests(sharded)
    calls = convert(command, sharded, tmp_path / "counted", *rungs).calls
    failed = 0
    for at in chosen(calls, every):
        target = tmp_path / "out"
        ended = convert(command, sharded, target, *rungs, fault=fault, at=at, number=number)
        assert hidden(tmp_path) == [], (at, ended)
        if ended.status == 0:
            assert ended.struck in SECOND_WAYS or ended.calls < at, (at, ended)
            assert contents(target) == converted, at
            for path in target.iterdir():
                path.unlink()
            target.rmdir()
        else:
            failed += 1
            assert ended.status == 3, (at, ended)
            assert "cannot be written" in ended.stderr
            assert ended.stderr.count("\n") == 1
            assert not target.exists(), at
    assert failed
    assert digests(sharded) == before


@pytest.mark.parametrize("without", [None, "exchange"])
@pytest.mark.parametrize("every", EVERY)
def test_a_kill_while_replacing_keeps_one_model_whole(
    command: FaultyCommand,
    sharded: Path,
    converted: dict[str, bytes],
    tmp_path: Path,
    every: bool,
    without: str | None,
) -> None:
    """The old one until the new one is there; on a system that cannot exchange two names there is
    a moment without either, and the new one is found by the next run."""
    target = tmp_path / "out"
    old = ("convert", sharded, target, "--kv-heads", 1, "--overwrite")
    assert command(*old).status == 0
    other = contents(target)
    calls = convert(command, sharded, target, "--overwrite", without=without).calls
    last = chosen(calls, True)[-40:]
    absent = 0
    for at in sorted({*chosen(calls, every), *(last if every else last[::4])}):
        assert command(*old).status == 0
        assert contents(target) == other, at
        killed = convert(
            command, sharded, target, "--overwrite", fault="kill", at=at, without=without
        )
        assert killed.status == 137, at
        if target.exists():
            assert contents(target) in (other, converted), at
        else:
            absent += 1
            assert convert(command, sharded, target).status == 0, at
            assert contents(target) == converted, at
        assert convert(command, sharded, target, "--overwrite").status == 0, at
        assert contents(target) == converted, at
        assert hidden(tmp_path) == [], at
    assert absent <= bool(without)
    assert absent or not every or not without


@pytest.mark.parametrize("without", [None, "exchange"])
@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("fault", ["once", "always"])
def test_a_failure_while_replacing_keeps_the_old_model(
    command: FaultyCommand,
    sharded: Path,
    converted: dict[str, bytes],
    tmp_path: Path,
    fault: str,
    every: bool,
    without: str | None,
) -> None:
    target = tmp_path / "out"
    old = ("convert", sharded, target, "--kv-heads", 1, "--overwrite")
    assert command(*old).status == 0
    other = contents(target)
    calls = convert(command, sharded, target, "--overwrite", without=without).calls
    assert command(*old).status == 0
    for at in sorted({*chosen(calls, every), *range(calls - 40, calls + 1, 1 if every else 4)}):
        ended = convert(
            command,
            *(sharded, target, "--overwrite"),
            fault=fault,
            at=at,
            number=5,
            without=without,
        )
        assert hidden(tmp_path) == [], (at, ended)
        assert contents(target) == (converted if ended.status == 0 else other), (at, ended)
        if ended.status == 0:
            assert command(*old).status == 0


@pytest.mark.parametrize("races", [8, pytest.param(50, marks=pytest.mark.slow)])
@pytest.mark.parametrize("without", [None, "lock"])
def test_of_two_runs_at_once_one_writes(
    command: FaultyCommand,
    sharded: Path,
    converted: dict[str, bytes],
    tmp_path: Path,
    without: str | None,
    races: int,
) -> None:
    """Without the lock both may work, but one valid model comes out."""
    with faulty_command() as other:
        for number in range(races):
            target = tmp_path / f"race-{number}"
            ended = race((command, other), sharded, target, without)
            assert contents(target) == converted
            assert hidden(tmp_path) == []
            losers = [ran for ran in ended if ran.status]
            assert len(losers) <= 1, ended
            for loser in losers:
                assert loser.status == 2
                words = ("is writing it", "already", "meanwhile")
                assert any(word in loser.stderr for word in words), loser
            assert sum(ran.calls > 40 and ran.status == 0 for ran in ended) == 1, ended


def race(
    commands: tuple[FaultyCommand, FaultyCommand], source: Path, target: Path, without: str | None
) -> list[Ran]:
    ended: list[Ran] = []
    barrier = threading.Barrier(2)

    def start(command: FaultyCommand) -> None:
        barrier.wait()
        ended.append(convert(command, source, target, without=without))

    threads = [threading.Thread(target=start, args=(command,)) for command in commands]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ended


def hidden(folder: Path) -> list[str]:
    """What conversions hide while they run."""
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))
