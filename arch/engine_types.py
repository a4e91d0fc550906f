"""Which engines have a class for a model_type, from a generated table (tools/engine_types.py)."""

import json
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

_TABLE = Path(__file__).with_name("generated") / "engine_types.jsonl"


def engines_with(model_type: str) -> tuple[str, ...]:
    """Those of vLLM, SGLang and llama.cpp that list a class of the type which generates text; none
    for a type that arch/ does not know."""
    return _rows().get(model_type, _NONE).engines


def pooling_engines(model_type: str) -> tuple[str, ...]:
    """Further ones, which list a class of the type for embeddings, classes or scores alone."""
    return _rows().get(model_type, _NONE).pooling


def gguf_architecture(model_type: str) -> str | None:
    """`general.architecture` of the GGUF files that llama.cpp's converter writes of the type."""
    return _rows().get(model_type, _NONE).gguf


class _Row(NamedTuple):
    engines: tuple[str, ...] = ()
    pooling: tuple[str, ...] = ()
    gguf: str | None = None


_NONE = _Row()


@lru_cache
def _rows() -> dict[str, _Row]:
    _versions, *lines = _TABLE.read_text(encoding="utf-8").splitlines()
    return {
        row["model_type"]: _Row(
            tuple(row["engines"]), tuple(row.get("pooling", ())), row.get("gguf")
        )
        for row in map(json.loads, lines)
    }
