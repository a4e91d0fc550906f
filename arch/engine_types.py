"""Which engines have a class for a model_type, from a generated table (tools/engine_types.py)."""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

_TABLE = Path(__file__).with_name("generated") / "engine_types.jsonl"


def engines_with(model_type: str) -> tuple[str, ...]:
    """Those of vLLM, SGLang and llama.cpp that list a class of the type; none for a type that
    arch/ does not know."""
    return tuple(_rows().get(model_type, {}).get("engines", ()))


def gguf_architecture(model_type: str) -> str | None:
    """`general.architecture` of the GGUF files that llama.cpp's converter writes of the type."""
    name = _rows().get(model_type, {}).get("gguf")
    return name if isinstance(name, str) else None


@lru_cache
def _rows() -> dict[str, dict[str, Any]]:
    _versions, *lines = _TABLE.read_text(encoding="utf-8").splitlines()
    return {row["model_type"]: row for row in map(json.loads, lines)}
