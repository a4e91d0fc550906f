"""The record of GGUF files that llama.cpp has loaded and run (tools/record_gguf.py)."""

import hashlib
import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from gguf_models import TOKENS

RECORD = Path(__file__).resolve().parents[2] / "convert" / "gguf" / "llama_cpp.jsonl"
_WORKER = Path(__file__).with_name("logits_worker.py")


class WrittenFile(NamedTuple):
    """A file as the package `gguf` reads it: of each tensor type, shape (torch's) and digest, and
    all key-values that are short."""

    tensors: dict[str, list[Any]]
    keys: dict[str, Any]


def read_file(path: Path) -> WrittenFile:
    from gguf import GGUFReader

    reader = GGUFReader(path)
    tensors = {
        one.name: [
            one.tensor_type.name,
            [int(size) for size in reversed(one.shape)],
            hashlib.sha256(one.data.tobytes()).hexdigest()[:16],
        ]
        for one in reader.tensors
    }
    keys = {
        name: field.contents()
        for name, field in reader.fields.items()
        if not name.startswith("GGUF.") and len(field.data) < 100
    }
    return WrittenFile(dict(sorted(tensors.items())), dict(sorted(keys.items())))


def recorded() -> dict[str, dict[str, Any]]:
    """The line of each model by its name."""
    _head, *lines = RECORD.read_text(encoding="utf-8").splitlines()
    return {line["name"]: line for line in map(json.loads, lines)}


def converted(source: Path, target: Path, **options: Any) -> Path:
    """The file that `convert --format gguf` makes of a folder."""
    from headcount.convert.conversion import convert
    from headcount.convert.gguf.gguf_file import NAME
    from headcount.convert.plan.request import ConversionRequest

    settings = {"num_key_value_heads": None, "source_name": "model", **options}
    convert(
        ConversionRequest(source=source, target=target, format="gguf", **settings), progress=False
    )
    return target / NAME


def logits_of(model: Any) -> list[list[float]]:
    """Those of transformers behind each of the tokens, in float32."""
    import torch

    with torch.no_grad():
        logits: list[list[float]] = model(torch.tensor([TOKENS])).logits[0].tolist()
    return logits


def ask_llama(python: str, asked: Iterable[Mapping[str, Any]]) -> list[Any]:
    """What `logits_worker.py` answers to each question."""
    lines = "".join(f"{json.dumps(one)}\n" for one in asked)
    command = [python, str(_WORKER)]
    ran = subprocess.run(command, input=lines, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in ran.stdout.splitlines()]
