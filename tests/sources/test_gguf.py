"""The GGUF reader: what it accepts, and one message per way a file can be wrong."""

import struct
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gguf_files import LLAMA, entry, gguf_bytes, key, llama_tensors, start, text, write_gguf
from headcount.model.errors import HeadcountError
from headcount.sources.gguf import Skipped, read_gguf
from lowered_limits import Lower

KEY = key("general.architecture", "llama")
U8, STRING, ARRAY = 0, 8, 9


def array(kind: int, count: int, body: bytes = b"") -> bytes:
    return text("a") + struct.pack("<IIQ", ARRAY, kind, count) + body


def test_tensors_have_the_bytes_of_their_blocks(tmp_path: Path) -> None:
    file = read_gguf(write_gguf(tmp_path / "a.gguf"))
    assert file.version == 3
    assert file.metadata["llama.attention.head_count"] == 8
    tensors = {t.name: t for t in file.header.tensors}
    query = tensors["blk.0.attn_q.weight"]
    assert (query.dtype, query.shape, query.nbytes) == ("Q4_K", (256, 256), 65536 // 256 * 144)
    assert tensors["blk.0.attn_k.weight"].shape == (64, 256)
    assert tensors["token_embd.weight"].nbytes == 40 * 210
    assert file.header.data_start % 32 == 0


def test_long_arrays_are_counted_and_not_kept(tmp_path: Path) -> None:
    metadata = {**LLAMA, "tokenizer.ggml.tokens": ["x"] * 5000, "scores": [0.5] * 5000}
    file = read_gguf(write_gguf(tmp_path / "a.gguf", metadata))
    assert file.metadata["tokenizer.ggml.tokens"] == Skipped(5000)
    assert file.metadata["scores"] == Skipped(5000)
    assert len(file.header.tensors) == len(llama_tensors())


def test_alignment_is_that_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    tensors = {"a": ("F32", (3,)), "b": ("F32", (3,))}
    path.write_bytes(gguf_bytes({"general.alignment": 8}, tensors, alignment=8))
    first, second = read_gguf(path).header.tensors
    assert second.offsets[0] - first.offsets[0] == 16


BROKEN: list[tuple[str, bytes, str]] = [
    ("empty file", b"", "not GGUF"),
    ("another magic", b"GGML" + bytes(60), "not GGUF"),
    ("only a magic", b"GGUF", "cut short"),
    ("version 1", start(0, 0, 1), "version 1"),
    ("a future version", start(0, 0, 4), "version 4"),
    ("big-endian", b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    ("too many tensors", start(2**63, 0), "claims"),
    ("too many keys", start(0, 2**40), "claims"),
    ("keys that are not there", start(0, 3) + KEY, "cut short"),
    ("a key longer than the file", start(0, 1) + struct.pack("<Q", 2**62), "cut short"),
    ("an empty key", start(0, 1) + key("", 1), "empty"),
    ("one key twice", start(0, 2) + KEY + KEY, "twice"),
    ("a key that is not UTF-8", start(0, 1) + text(b"\xff") + struct.pack("<IB", U8, 1), "UTF-8"),
    ("unknown type of value", start(0, 1) + text("a") + struct.pack("<I", 13), "type of value 13"),
    ("a string beyond the file", start(0, 1) + text("a") + struct.pack("<IQ", 8, 2**63), "cut"),
    ("2^40 bytes in an array", start(0, 1) + array(U8, 2**40), "cut short"),
    ("2^61 strings", start(0, 1) + array(STRING, 2**61), "cut short"),
    ("an array of unknown type", start(0, 1) + array(99, 1, bytes(9)), "type of value 99"),
    ("deep nesting", start(0, 1) + array(ARRAY, 1, struct.pack("<IQ", ARRAY, 1) * 50), "nested"),
    ("a million arrays", start(0, 1) + array(ARRAY, 10**6, bytes(12 * 10**6)), "more than"),
    ("alignment 0", start(0, 1) + key("general.alignment", 0), "power of two"),
    ("alignment 24", start(0, 1) + key("general.alignment", 24), "power of two"),
    ("alignment of a gigabyte", start(0, 1) + key("general.alignment", 2**30), "power of two"),
    ("alignment as text", start(0, 1) + key("general.alignment", "32"), "power of two"),
    ("a long name", start(1, 0) + entry("n" * 65, (1,), 0, 0), "65 bytes"),
    ("five dimensions", start(1, 0) + entry("t", (1,) * 5, 0, 0), "5 dimensions"),
    ("a huge dimension", start(1, 0) + entry("t", (2**63,), 0, 0), "too large"),
    ("a huge product", start(1, 0) + entry("t", (2**32, 2**32), 0, 0), "too large"),
    ("an unknown type", start(1, 0) + entry("t", (1,), 4, 0), "unknown type 4"),
    ("half a block", start(1, 0) + entry("t", (33,), 2, 0), "whole blocks"),
    ("an offset elsewhere", start(1, 0) + entry("t", (8,), 0, 32) + bytes(96), "should be at 0"),
    (
        "an overlap",
        start(2, 0) + entry("a", (8,), 0, 0) + entry("b", (8,), 0, 0) + bytes(96),
        "should be at 32",
    ),
    (
        "a name twice",
        start(2, 0) + entry("a", (8,), 0, 0) + entry("a", (8,), 0, 32) + bytes(96),
        "twice",
    ),
    ("no data", start(1, 0) + entry("t", (256,), 0, 0), "ends at byte"),
]


@pytest.mark.parametrize(("data", "expected"), [b[1:] for b in BROKEN], ids=[b[0] for b in BROKEN])
def test_each_fault_has_its_message(tmp_path: Path, data: bytes, expected: str) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(data)
    begin = time.perf_counter()
    with pytest.raises(HeadcountError, match=expected) as caught:
        read_gguf(path)
    assert time.perf_counter() - begin < 1
    assert "a.gguf" in str(caught.value)


def test_a_long_list_of_long_strings_is_stepped_over(tmp_path: Path) -> None:
    """Strings that end at, before and beyond the blocks in which the list is read."""
    lengths = [2**20 - 8, 2**20 - 16, 3 * 2**20, *(i % 97 for i in range(50_000))]
    body = b"".join(struct.pack("<Q", n) + bytes(n) for n in lengths)
    path = tmp_path / "a.gguf"
    path.write_bytes(start(0, 2) + array(STRING, len(lengths), body) + KEY)
    file = read_gguf(path)
    assert file.metadata["a"] == Skipped(len(lengths))
    assert file.metadata["general.architecture"] == "llama"
    path.write_bytes(start(0, 1) + array(STRING, len(lengths), body)[:-1])
    with pytest.raises(HeadcountError, match="cut short"):
        read_gguf(path)


def test_no_more_is_kept_than_a_model_needs(tmp_path: Path, lower: Lower) -> None:
    lower("GGUF_KEPT_BYTES", 100)
    metadata = {"a": [1] * 12, "b": [1] * 12, "c": "x" * 99, "d": ["x"] * 2, "e": 5}
    file = read_gguf(write_gguf(tmp_path / "a.gguf", metadata, {}))
    assert file.metadata == {
        **{"a": (1,) * 12, "b": Skipped(12), "c": Skipped(99), "d": Skipped(2), "e": 5}
    }


def test_empty_strings_without_end_are_given_up(tmp_path: Path, lower: Lower) -> None:
    """A sparse file of zeros is one of any number of empty strings."""
    lower("GGUF_STRINGS", 10_000)
    path = tmp_path / "a.gguf"
    path.write_bytes(start(0, 1) + array(STRING, 2**30))
    with path.open("r+b") as file:
        file.truncate(2**34)
    with pytest.raises(HeadcountError, match="more than"):
        read_gguf(path)


GOOD = gguf_bytes(LLAMA, {"token_embd.weight": ("Q8_0", (4, 32)), "b": ("F32", (3,))})


@given(st.binary(max_size=60), st.integers(0, len(GOOD)), st.integers(0, len(GOOD)))
def test_any_bytes_give_a_file_or_a_clean_error(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, position: int, end: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.gguf"
    data = bytearray(GOOD)
    data[position : position + len(noise)] = noise
    path.write_bytes(data[:end] if end % 2 else data)
    try:
        read_gguf(path)
    except HeadcountError as error:
        assert str(path) in str(error)
