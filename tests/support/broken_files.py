"""What people drop on the page that has no answer, and what it says of it."""

import json
import struct
from typing import NamedTuple

from checkpoints import LLAMA_CONFIG


class BrokenFile(NamedTuple):
    """Bytes, the question that the page asks of them, and words of its answer."""

    data: bytes
    field: str
    said: str


_WORDY = {**LLAMA_CONFIG, "hidden_size": "wide"}
# The name says of which kind it pretends to be.
BROKEN = {
    "config.json": BrokenFile(b'{"model_type": "llama", ', "audit", "config.json"),
    "list.json": BrokenFile(b"[1, 2]", "audit", "list.json"),
    "other.json": BrokenFile(b'{"name": "a package", "version": "1"}', "audit", "other.json"),
    "sizes.json": BrokenFile(json.dumps(_WORDY).encode(), "plan", "hidden_size"),
    "heads.json": BrokenFile(
        json.dumps({**LLAMA_CONFIG, "num_attention_heads": -4}).encode(), "audit", "num_attention"
    ),
    "empty.json": BrokenFile(b"", "plan", "empty.json"),
    "cut.gguf": BrokenFile(b"GGUF" + struct.pack("<IQQ", 3, 200, 20), "plan", "cut.gguf"),
    "empty.gguf": BrokenFile(b"", "plan", "empty.gguf"),
    "page.gguf": BrokenFile(b"<!doctype html><p>404", "audit", "page.gguf"),
    "cut.safetensors": BrokenFile(struct.pack("<Q", 4096) + b'{"a"', "audit", "cut.safetensors"),
    "pointer.safetensors": BrokenFile(
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
        "audit",
        "pointer.safetensors",
    ),
    "start.log": BrokenFile(b"hello\nthis is no log of an engine\n", "log", "none of the figures"),
    "empty.log": BrokenFile(b"", "log", "none of the figures"),
    "picture.png": BrokenFile(b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "log", "picture.png"),
}
