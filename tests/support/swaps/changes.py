"""Another state of a file of a model, and how it takes the first one's place."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

Change = Callable[[], None]


def with_its_tensors_moved(source: Path, target: Path) -> None:
    """A file with a header of the same length: tensors of one shape and type have changed places,
    as far as the numbers in the header are as long (where there are several), and all values are
    halved."""
    data = source.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    values = {name: (tensor * 0.5).contiguous() for name, tensor in load_file(source).items()}
    alike: dict[tuple[Any, ...], list[str]] = {}
    for name, entry in header.items():
        if name != "__metadata__":
            lengths = [len(str(offset)) for offset in entry["data_offsets"]]
            alike.setdefault((entry["dtype"], *entry["shape"], *lengths), []).append(name)
    moved, body = dict(header), bytearray(len(data) - start)
    for names in alike.values():
        for name, place in zip(names, [*names[1:], names[0]], strict=True):
            begin, end = header[place]["data_offsets"]
            moved[name] = {**header[name], "data_offsets": [begin, end]}
            body[begin:end] = values[name].view(torch.uint8).numpy().tobytes()
    text = json.dumps(moved, separators=(",", ":")).encode()
    assert len(text) <= start - 8
    target.write_bytes(data[:8] + text.ljust(start - 8) + bytes(body))


def with_another_config(source: Path, target: Path) -> None:
    """A config of the same length and shapes that computes something else."""
    text = source.read_text()
    assert text.count('"rms_norm_eps": 1e-06') == 1
    target.write_text(text.replace('"rms_norm_eps": 1e-06', '"rms_norm_eps": 1e-03'))


def with_another_index(source: Path, target: Path) -> None:
    """An index of the same tensors that says something else, which the output takes over."""
    index = json.loads(source.read_text())
    index["metadata"]["note"] = "another"
    target.write_text(json.dumps(index))


def with_another_token(source: Path, target: Path) -> None:
    """A tokenizer of the same length that cuts another way: two letters have changed places."""
    tokenizer = json.loads(source.read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["e"], vocabulary["t"] = vocabulary["t"], vocabulary["e"]
    target.write_text(json.dumps(tokenizer))


def replacing(file: Path, by: Path) -> Change:
    """A rename: what has the file open keeps the old one."""
    new = file.parent.with_name(f"{file.name}.new")  # made now: only the rename is the moment
    shutil.copyfile(by, new)

    def rename() -> None:
        new.rename(file)

    return rename


def overwriting(file: Path, by: Path) -> Change:
    """In place, in the same inode; the size may stay."""
    data = by.read_bytes()

    def write() -> None:
        descriptor = os.open(file, os.O_WRONLY | os.O_TRUNC)
        try:
            os.write(descriptor, data)
        finally:
            os.close(descriptor)

    return write


def pointing(link: Path, to: Path) -> Change:
    """A link to a folder leads to another one."""
    new = link.with_name(f".{link.name}.new")

    def rename() -> None:
        new.symlink_to(to)
        new.rename(link)

    return rename
