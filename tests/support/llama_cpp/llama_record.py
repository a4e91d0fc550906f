"""What llama.cpp says of its buffers, and the models and starts of which it was asked.

The first line has the version, and the starts by name (`runs`); each of the others a model: its
`keys`, its tensors, and an answer for each start: MiB by kind and place, or why it was refused.
`large` models have the sizes of real ones, and were started without memory.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

RECORD = Path(__file__).resolve().parents[2] / "plan" / "engines" / "llama_cpp.jsonl"
Json = dict[str, Any]


def recorded() -> tuple[Json, list[Json]]:
    """The first line, and the models."""
    first, *rest = RECORD.read_text(encoding="utf-8").splitlines()
    return json.loads(first), [json.loads(line) for line in rest]


def jobs(head: Json, models: list[Json]) -> Iterator[str]:
    """What the worker is asked, a line a model."""
    for model in models:
        names = model["answers"]
        runs = [{**head["runs"][name], "run": name} for name in names]
        asked = {"name": model["name"], "metadata": metadata(model), "runs": runs}
        yield json.dumps({**asked, "virtual": model.get("large", False)}) + "\n"


def metadata(model: Json) -> Json:
    """The key-values of a file; `tokenizer.ggml.tokens` is their number."""
    architecture = model["architecture"]
    found = {"general.architecture": architecture, "tokenizer.ggml.model": "test"}
    for name, value in model["keys"].items():
        is_own = name.startswith(("tokenizer.", "xielu."))
        found[name if is_own else f"{architecture}.{name}"] = value
    return found


def line_of(model: Json, answer: Json) -> Json:
    """The model's line, with the worker's answers."""
    answers = {run["run"]: run.get("buffers") or run["refused"] for run in answer["runs"]}
    kept: Json = {
        name: model[name] for name in ("name", "architecture", "large", "keys") if name in model
    }
    return {**kept, "tensors": grouped(answer.get("tensors", {})), "answers": answers}


def grouped(tensors: Mapping[str, list[Any]]) -> list[list[Any]]:
    """[name with * for the number of its layer, type, dimensions, layers]."""
    found: dict[str, list[Any]] = {}
    for name, (kind, dims) in tensors.items():
        layer = re.match(r"blk\.(\d+)\.", name)
        general = re.sub(r"^blk\.\d+\.", "blk.*.", name)
        row = found.setdefault(f"{general} {kind} {dims}", [general, kind, dims, []])
        row[3] += [int(layer[1])] if layer else []
    return list(found.values())


def ungrouped(rows: list[list[Any]]) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Name, type and shape (rows before columns) of each tensor."""
    for name, kind, dims, layers in rows:
        for layer in layers or [""]:
            yield name.replace("*", str(layer)), kind, tuple(reversed(dims))
