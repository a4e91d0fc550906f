"""The header reader against the reference parser (safetensors) on mutated files: same verdicts.

Where ours is stricter by design, the rule is listed in STRICTER and its message must say so.
"""

import json
import random
import struct
from collections import Counter
from math import prod
from pathlib import Path
from typing import Any

import pytest

from headcount.model.dtypes import SAFETENSORS_BITS
from headcount.model.errors import HeadcountError
from headcount.sources.safetensors import read_header

safetensors = pytest.importorskip("safetensors")

# Parts of our messages for files that the reference accepts.
STRICTER = ("stands twice",)
HOSTILE: list[Any] = [
    *(None, True, False, -1, 0, 1, 2.0, 1.5, 2**31, 2**32, 2**63, 2**64 - 1, 2**64, 10**30),
    *("", "F32", "BOOL", "F128", "a\u0000b", "\ud800", [], [0], [1, 2, 3], [2**33, 2**33, 0], {}),
    *([0, 2**33, 2**33], [2**64 - 1, 0], [[1]], ["1"], {"a": 1}, {"format": "pt"}, [-1], [1e3]),
]


def sound(chance: random.Random) -> tuple[dict[str, Any], int]:
    """A header that both accept, and the bytes behind it."""
    header: dict[str, Any] = {}
    end = 0
    for i in range(chance.randrange(4)):
        dtype = chance.choice(list(SAFETENSORS_BITS))
        shape = [chance.choice((0, 1, 2, 4, 8)) for _ in range(chance.randrange(4))]
        bits = prod(shape) * SAFETENSORS_BITS[dtype]
        if bits % 8:
            continue
        header[f"t{i}"] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + bits // 8]}
        end += bits // 8
    if chance.random() < 0.3:
        header["__metadata__"] = {"format": "pt"}
    items = list(header.items())
    chance.shuffle(items)
    return dict(items), end


def change_values(chance: random.Random, header: dict[str, Any]) -> None:
    """A field, an entry or a number becomes something else."""
    if not header:
        header["x"] = chance.choice(HOSTILE)
        return
    name = chance.choice(list(header))
    entry = header[name]
    how = chance.randrange(6)
    if how == 0 or not isinstance(entry, dict) or not entry:
        header[name] = chance.choice(HOSTILE)
    elif how == 1:
        entry[chance.choice(list(entry))] = chance.choice(HOSTILE)
    elif how == 2:
        del entry[chance.choice(list(entry))]
    elif how == 3:
        entry["more"] = chance.choice(HOSTILE)
    elif how == 4:
        header[chance.choice(("", "../x", "é", "t0", "__metadata__"))] = header.pop(name)
    else:
        field = chance.choice(("shape", "data_offsets"))
        value = entry.get(field)
        if isinstance(value, list) and value:
            value[chance.randrange(len(value))] = chance.choice((0, 1, 3, -1, 2**64, 8.0, True))


def change_text(chance: random.Random, text: bytes) -> bytes:
    """The JSON text is cut, padded, doubled or overwritten."""
    how, at = chance.randrange(7), chance.randrange(len(text) + 1)
    noise = bytes(chance.randrange(256) for _ in range(chance.randrange(1, 4)))
    if how == 0:
        return text[:at] + noise + text[at + len(noise) :]
    if how == 1:
        return text[:at]
    if how == 2:
        return text + chance.choice((b" ", b"\n\t ", b"\x00", b"}", b"  x"))
    if how == 3:
        return chance.choice((b" ", b"\xef\xbb\xbf", b"\n", b"\xff\xfe")) + text
    if how == 4:
        return text.replace(b"t1", b"t0")  # one name twice
    if how == 5:
        return text.replace(b'"dtype"', b'"dtype":"F32","dtype"', 1)  # one field twice
    return text.replace(b":", chance.choice((b": ", b":  ", b"::", b":0,")), 1)


def mutated(seed: int) -> bytes:
    """File number `seed`: sound in some cases, changed in one to three ways in the others."""
    chance = random.Random(seed)
    header, size = sound(chance)
    changes = chance.randrange(4)
    for _ in range(changes):
        if chance.random() < 0.6:
            change_values(chance, header)
    text = json.dumps(header, ensure_ascii=chance.random() < 0.5).encode("utf-8", "surrogatepass")
    for _ in range(changes):
        if chance.random() < 0.3:
            text = change_text(chance, text)
    length = len(text) + (chance.choice((-1, 1, 8, 2**40)) if chance.random() < 0.05 else 0)
    size += chance.choice((-1, 1, 8)) if chance.random() < 0.1 else 0
    return struct.pack("<Q", max(length, 0)) + text + bytes(max(size, 0))


def verdicts(data: bytes, path: Path) -> tuple[str, str]:
    """(the reference's, ours): empty for accepted, else the message."""
    theirs = ours = ""
    try:
        safetensors.deserialize(data)
    except Exception as error:  # its own type, which names every fault
        theirs = str(error) or "refused"
    path.write_bytes(data)
    try:
        read_header(path)
    except HeadcountError as error:
        ours = str(error)
    return theirs, ours


def compare(path: Path, seeds: range) -> Counter[str]:
    """Verdicts counted; raises AssertionError with the seed where they differ."""
    count: Counter[str] = Counter()
    for seed in seeds:
        theirs, ours = verdicts(mutated(seed), path)
        if bool(theirs) == bool(ours):
            count["refused" if ours else "accepted"] += 1
        else:
            rule = next((rule for rule in STRICTER if rule in ours), None)
            assert rule is not None, f"seed {seed}: reference {theirs!r}, ours {ours!r}"
            count[rule] += 1
    return count


def test_a_thousand_files(tmp_path: Path) -> None:
    count = compare(tmp_path / "a.safetensors", range(1000))
    assert min(count["accepted"], count["refused"]) > 200, "both verdicts are tried"


@pytest.mark.slow
def test_a_hundred_thousand_files(tmp_path: Path) -> None:
    count = compare(tmp_path / "a.safetensors", range(1000, 101_000))
    assert count["stands twice"] > 0
