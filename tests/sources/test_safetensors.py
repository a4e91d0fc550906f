"""The header reader: what it accepts, and one message per way a file can be wrong."""

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoints import header_bytes, write_safetensors
from headcount.model.errors import HeadcountError
from headcount.sources.safetensors import read_header

GOOD = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def entry(**changes: Any) -> dict[str, Any]:
    return {**GOOD, **changes}


def test_tensors_come_in_the_order_of_their_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    second_first = {
        "b": entry(data_offsets=[8, 16]),
        "a": entry(),
        "__metadata__": {"format": "pt"},
    }
    path.write_bytes(header_bytes(second_first) + bytes(16))
    header = read_header(path)
    start = path.stat().st_size - 16
    assert [(t.name, t.offsets) for t in header.tensors] == [
        ("a", (start, start + 8)),
        ("b", (start + 8, start + 16)),
    ]
    assert (header.metadata, header.data_start) == ({"format": "pt"}, start)
    assert (header.tensors[0].elements, header.tensors[0].nbytes) == (2, 8)


@pytest.mark.parametrize("size", [2**63, -1])
def test_a_shape_of_many_sizes_gives_a_short_message(tmp_path: Path, size: int) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(header_bytes({"a" * 10_000: entry(shape=[size] * 200_000)}) + bytes(8))
    with pytest.raises(HeadcountError) as caught:
        read_header(path)
    assert len(str(caught.value)) < len(str(path)) + 500


BROKEN: list[tuple[str, bytes, str]] = [
    ("empty file", b"", "too few"),
    ("length beyond the file", struct.pack("<Q", 2**40) + b"{}", "cut short"),
    (
        "header above the cap",
        struct.pack("<Q", 2**25 + 1) + bytes(2**25 + 1),
        "no more than 33,554,432",
    ),
    ("a web page", b"<!DOCTYPE html><html></html>", "HTML page"),
    ("a small web page", b"<html>", "HTML page"),
    ("not JSON", header_bytes(b"{nope"), "not JSON"),
    ("not UTF-8", header_bytes(b"\xff\xfe{}"), "UTF-8"),
    ("an array", header_bytes([]), "JSON object"),
    ("NaN", header_bytes(b'{"a": NaN}'), "NaN"),
    ("deep nesting", header_bytes(b'{"a":' * 50_000), "header"),
    ("one name twice", header_bytes(b'{"a": {}, "a": {}}'), "twice"),
    ("tensor is no object", header_bytes({"a": 1}), "object"),
    ("unknown dtype", header_bytes({"a": entry(dtype="F128")}) + bytes(8), "F128"),
    ("dtype is no string", header_bytes({"a": entry(dtype=["F32"])}) + bytes(8), "dtype"),
    ("float in the shape", header_bytes({"a": entry(shape=[2.0])}) + bytes(8), "not valid"),
    ("bool in the shape", header_bytes({"a": entry(shape=[True, 2])}) + bytes(8), "not valid"),
    ("negative", header_bytes({"a": entry(shape=[-2])}) + bytes(8), "not valid"),
    ("one offset", header_bytes({"a": entry(data_offsets=[0])}) + bytes(8), "not valid"),
    ("size is not the shape's", header_bytes({"a": entry(shape=[3])}) + bytes(8), "12 bytes"),
    ("half a byte", header_bytes({"a": entry(dtype="F4", shape=[1])}) + bytes(8), "takes 1"),
    ("file too short", header_bytes({"a": GOOD}) + bytes(7), "cut short"),
    ("bytes behind", header_bytes({"a": GOOD}) + bytes(9), "no tensor"),
    ("a hole", header_bytes({"a": GOOD, "b": entry(data_offsets=[9, 17])}) + bytes(17), "hole"),
    ("an overlap", header_bytes({"a": GOOD, "b": entry(data_offsets=[4, 12])}) + bytes(12), "hole"),
    ("metadata of numbers", header_bytes({"__metadata__": {"a": 1}}), "__metadata__"),
    ("LFS pointer", b"version https://git-lfs.github.com/spec/v1\noid sha256:1", "git lfs pull"),
    ("zip", b"PK\x03\x04" + bytes(64), "zip"),
    ("GGUF", b"GGUF" + bytes(64), "GGUF"),
]


@pytest.mark.parametrize(("data", "expected"), [b[1:] for b in BROKEN], ids=[b[0] for b in BROKEN])
def test_each_fault_has_its_message(tmp_path: Path, data: bytes, expected: str) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(data)
    with pytest.raises(HeadcountError, match=expected) as caught:
        read_header(path)
    assert "a.safetensors" in str(caught.value)


def test_a_fifo_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    os.mkfifo(path)
    with pytest.raises(HeadcountError, match="regular file"):
        read_header(path)


@given(st.binary(max_size=200), st.integers(0, 400))
def test_any_bytes_give_a_header_or_a_clean_error(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, position: int
) -> None:
    """Bytes of a good file are overwritten; nothing but HeadcountError may come out."""
    path = tmp_path_factory.getbasetemp() / "fuzz.safetensors"
    write_safetensors(path, {"a": (2, 3), "b": (4,)}, "F32")
    data = bytearray(path.read_bytes())
    data[position % len(data) : position % len(data) + len(noise)] = noise
    path.write_bytes(data)
    try:
        read_header(path)
    except HeadcountError as error:
        assert str(path) in str(error)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(list(GOOD)), inner),
    max_leaves=6,
)


@given(JSON)
def test_any_json_gives_a_header_or_a_clean_error(
    tmp_path_factory: pytest.TempPathFactory, value: Any
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.safetensors"
    path.write_bytes(header_bytes(json.dumps({"t": value}).encode()))
    try:
        read_header(path)
    except HeadcountError as error:
        assert str(path) in str(error)
