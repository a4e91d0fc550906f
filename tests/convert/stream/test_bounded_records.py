"""No more of a journal or of a lock is read than a run writes: what follows says nothing."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from headcount.convert.plan.errors import TargetError
from headcount.convert.plan.process import this_process
from headcount.convert.stream.journal import FinishedFile, Journal, read_journal
from headcount.convert.stream.lock import TargetLock
from headcount.model.limits import LOCK_BYTES
from lowered_limits import Lower

pytestmark = pytest.mark.needs_convert


def test_a_journal_is_read_as_far_as_its_limit(tmp_path: Path, lower: Lower) -> None:
    files = [FinishedFile(name=f"{i}", nbytes=i, digest="d", measured=None) for i in range(9)]
    path = tmp_path / "journal.jsonl"
    Journal(path, "job", files).close()
    assert read_journal(path, "job") == tuple(files)
    lines = path.read_bytes().splitlines(keepends=True)
    lower("JOURNAL_BYTES", len(b"".join(lines[:4])) + 5)  # the job, three files, a part of one
    assert read_journal(path, "job") == tuple(files[:3])


def test_a_lock_longer_than_one_is_nobodys(tmp_path: Path) -> None:
    lock = tmp_path / ".out.lock"
    said = asdict(this_process())
    for text, is_held in ((json.dumps(said), True), (" " * LOCK_BYTES.most + "{}", False)):
        lock.write_text(text)
        if is_held:
            with pytest.raises(TargetError, match="is writing it"), TargetLock(tmp_path / "out"):
                pass
        else:
            with TargetLock(tmp_path / "out"):
                assert json.loads(lock.read_text()) == said
