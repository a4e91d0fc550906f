"""Reading a stranger's config.json."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headcount.model.errors import HeadcountError, InvalidConfigError
from headcount.sources.json_file import parse_json, read_json

WRONG = [
    (b"", "not JSON"),
    (b"[1]", "object is expected"),
    (b"null", "object is expected"),
    (b'{"a": 1, "a": 2}', "'a' stands twice"),
    (b'{"a": {"b": 1, "b": 2}}', "'b' stands twice"),
    (b"\xff\xfe{\x00}\x00", "UTF-8"),
    (b'{"a":' * 100_000, "nested|not JSON"),
    (b'{"a": ' + b"9" * 5000 + b"}", "config.json"),
    (b"<!DOCTYPE html><html></html>", "HTML"),
    (b"version https://git-lfs.github.com/spec/v1", "git lfs pull"),
    (b'{"a": 1,}', "line 1, column"),
]


@pytest.mark.parametrize(("data", "expected"), WRONG)
def test_one_message_per_fault(tmp_path: Path, data: bytes, expected: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(data)
    with pytest.raises(InvalidConfigError, match=expected) as caught:
        read_json(path)
    assert str(path) in str(caught.value)


def test_a_byte_order_mark_and_infinity_are_real(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b'\xef\xbb\xbf{"time_step_limit": [0.0, Infinity]}')
    assert read_json(path) == {"time_step_limit": [0.0, float("inf")]}


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b" " * 11 * 2**20)
    with pytest.raises(InvalidConfigError, match="no more than"):
        read_json(path)


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(HeadcountError, match="no such file"):
        read_json(tmp_path / "config.json")
    with pytest.raises(HeadcountError, match="regular file"):
        read_json(tmp_path)


MEMORY = Path("/proc/self/mem")  # a regular file, of which the first bytes cannot be read


@pytest.mark.skipif(not MEMORY.exists(), reason="needs Linux's /proc")
def test_an_error_of_the_disk_names_the_file() -> None:
    with pytest.raises(HeadcountError, match="/proc/self/mem: cannot be read: "):
        read_json(MEMORY)


@given(st.binary(max_size=300))
def test_any_bytes_give_an_object_or_a_clean_error(data: bytes) -> None:
    try:
        value: Any = parse_json(data, "here")
    except InvalidConfigError as error:
        assert str(error).startswith("here: ")
    else:
        assert isinstance(value, dict)
