"""Files as llama.cpp itself makes them of key-values: an audit finds nothing wrong with them."""

import os
from pathlib import Path

import pytest

from gguf_files import gguf_header
from headcount.audit.auditing import audit_model
from llama_record import Json, metadata, recorded, ungrouped

FILES = [line for line in recorded()[1] if line["tensors"] and not line.get("large")]
# What is not so in a file that people have, or not told by its keys.
EXCEPTIONS = {
    **dict.fromkeys(
        ("modern-bert", "qwen", "cogvlm"), "K/V heads in a key that its loader ignores"
    ),
    "wavtokenizer-dec": "convolutions for attention, in lists of its own",
    "dots3note": "a norm of the rotated key, which no key tells",
    "qwen3tts": "its embedding is that of the codec",
}


def written(path: Path, line: Json) -> Path:
    count = line["keys"]["tokenizer.ggml.tokens"]
    keys = metadata(line) | {"tokenizer.ggml.tokens": [f"token {i}" for i in range(count)]}
    tensors = {name: (kind, shape) for name, kind, shape in ungrouped(line["tensors"])}
    header, size = gguf_header(keys, tensors)
    path.write_bytes(header)
    os.truncate(path, len(header) + size)
    return path


@pytest.mark.parametrize("line", FILES, ids=[line["name"] for line in FILES])
def test_a_sound_file_has_no_errors(line: Json, tmp_path: Path) -> None:
    audit = audit_model(str(written(tmp_path / "model.gguf", line)))
    errors = [f.message for f in audit.findings if f.severity == "error"]
    assert bool(errors) == (line["name"] in EXCEPTIONS), errors
