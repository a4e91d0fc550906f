"""A tokenizer of which a file cannot be looked at is not loaded without it."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headcount.model.errors import HeadcountError
from headcount.running.strict_presence import strict_presence
from headcount.running.tokens import load_tokenizer

pytestmark = pytest.mark.needs_convert
SaveModel = Callable[..., Path]


def failing(monkeypatch: pytest.MonkeyPatch, name: str, at: int) -> None:
    """The `at`-th look at files of that name fails."""
    stat, looks = os.stat, 0

    def fails(path: Any, **options: Any) -> os.stat_result:
        nonlocal looks
        if str(path).endswith(name):
            looks += 1
            if looks == at:
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", fails)


@pytest.mark.parametrize("at", range(1, 8))
def test_no_look_at_a_tokenizer_may_fail_unnoticed(
    save_model: SaveModel, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    folder = save_model("llama", num_key_value_heads=4)
    whole = load_tokenizer(folder)("some text")["input_ids"]
    with monkeypatch.context() as patch:
        failing(patch, "tokenizer.json", at)
        try:
            found = load_tokenizer(folder)("some text")["input_ids"]
        except (HeadcountError, OSError) as error:
            assert "nput/output error" in str(error)
        else:
            assert found == whole


def test_inside_the_questions_are_answered_as_before(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    places = [tmp_path, tmp_path / "file", str(tmp_path), tmp_path / "none", b"/", "a\0b", 1]
    names = ("exists", "isfile", "isdir")
    before = [(name, place, getattr(os.path, name)(place)) for name in names for place in places]
    with strict_presence():
        inside = [(n, p, getattr(os.path, n)(p)) for n in names for p in places]
    assert inside == before
