"""The start of a safetensors file: written so that copies can share blocks, and read back."""

import json
import struct
from collections import Counter
from pathlib import Path
from typing import Any

from headcount.sources.safetensors import read_header

from ..plan.errors import SelfCheckError
from ..plan.plan import OutputFile
from ..plan.steps import Copy

# What XFS and btrfs share between files: whole blocks, as far from each file's start as from the
# other's, up to whole blocks.
BLOCK = 4096
_WORTH_SHARING = 2**24  # copied bytes of a file; smaller ones need no blanks


def header_bytes(file: OutputFile) -> bytes:
    """Length, JSON, blanks up to the tensors, which begin at a multiple of 8 bytes."""
    entries: dict[str, Any] = {"__metadata__": dict(file.metadata)} if file.metadata else {}
    position = 0
    for step in file.steps:
        end = position + step.nbytes
        entries[step.name] = {
            "dtype": step.dtype,
            "shape": list(step.shape),
            "data_offsets": [position, end],
        }
        position = end
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (_data_start(file, 8 + len(text)) - 8 - len(text))
    return struct.pack("<Q", len(text)) + text


def _data_start(file: OutputFile, least: int) -> int:
    """The first multiple of 8 from `least` on with which most of the copied bytes lie at the same
    place in a block as in the source. It depends on nothing but the plan."""
    start, position = least + -least % 8, 0
    copied: Counter[int] = Counter()
    for step in file.steps:
        if isinstance(step.action, Copy) and step.nbytes >= BLOCK:
            copied[(step.sources[0].offsets[0] - position - start) % BLOCK] += step.nbytes
        position += step.nbytes
    if copied.total() < _WORTH_SHARING:
        return start
    blanks = [(count, -blank) for blank, count in copied.items() if blank % 8 == 0]
    return start - max(blanks, default=(0, 0))[1]


def check_written(path: Path, file: OutputFile) -> None:
    """Reads the header back. Raises SelfCheckError if it is not what the plan says."""
    header = read_header(path)
    found = [(t.name, t.dtype, t.shape) for t in header.tensors if t.nbytes]
    planned = [(step.name, step.dtype, step.shape) for step in file.steps if step.nbytes]
    if found != planned or len(header.tensors) != len(file.steps):
        raise SelfCheckError(f"{path}: does not hold what was planned; nothing was kept")
