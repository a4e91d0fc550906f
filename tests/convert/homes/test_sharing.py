"""Copies that a file system can share: whole blocks, at the same place in both files' blocks."""

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conversions import load_whole, run
from headcount.convert.stream import safetensors_header as header

pytestmark = pytest.mark.needs_convert
MakeFolder = Callable[..., Path]
BLOCK = 4096  # of XFS and btrfs, as they are made by default
WIDE = {"hidden_size": 256, "intermediate_size": 512, "vocab_size": 512, "head_dim": 64}


@pytest.fixture
def wide(grouped: MakeFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Llama with tensors of many blocks, none too small to be shared."""
    from transformers import AutoModelForCausalLM

    monkeypatch.setattr(header, "_WORTH_SHARING", 0)
    model = AutoModelForCausalLM.from_pretrained(grouped("llama", 4, 4, **WIDE))
    model.save_pretrained(tmp_path / "wide", max_shard_size="1MB")
    return tmp_path / "wide"


def offsets(folder: Path) -> dict[str, tuple[int, int]]:
    """Tensor -> where its bytes are in its file."""
    found = {}
    for path in folder.glob("*.safetensors"):
        data = path.read_bytes()
        start = 8 + struct.unpack("<Q", data[:8])[0]
        header: dict[str, Any] = json.loads(data[8:start])
        header.pop("__metadata__", None)
        found |= {
            name: (start + entry["data_offsets"][0], start + entry["data_offsets"][1])
            for name, entry in header.items()
        }
    return found


def test_copied_tensors_stay_at_their_place_in_a_block(wide: Path, tmp_path: Path) -> None:
    """K and V shrink by whole blocks here, so every other large tensor can stay at its place."""
    run(wide, tmp_path / "out", kv=2)
    before, after = offsets(wide), offsets(tmp_path / "out")
    assert before.keys() == after.keys()
    kept = [name for name, (start, end) in before.items() if end - start >= 2**16]
    kept = [name for name in kept if "k_proj" not in name and "v_proj" not in name]
    assert len({before[name][0] % BLOCK for name in kept}) > 2
    assert [name for name in kept if (before[name][0] - after[name][0]) % BLOCK] == []
    load_whole(tmp_path / "out")


@pytest.mark.skipif(not hasattr(os, "copy_file_range"), reason="the kernel does not copy here")
def test_the_kernel_is_asked_for_whole_blocks(
    wide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what is copied, nearly all goes in calls that start at a block on both sides."""
    real, shared, copied = os.copy_file_range, 0, 0

    def copy_file_range(source: int, target: int, count: int, *, offset_src: int) -> int:
        nonlocal shared, copied
        here = os.lseek(target, 0, os.SEEK_CUR)
        moved = real(source, target, count, offset_src=offset_src)
        copied += moved
        if offset_src % BLOCK == 0 and here % BLOCK == 0:
            shared += moved // BLOCK * BLOCK
        return moved

    monkeypatch.setattr(os, "copy_file_range", copy_file_range)
    run(wide, tmp_path / "out", kv=2)
    assert shared > 0.9 * copied > 2**20
