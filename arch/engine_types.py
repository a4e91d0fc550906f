"""Which engines have a class for a model_type, from a generated table (tools/engine_types.py)."""

import json
from functools import lru_cache
from pathlib import Path

_TABLE = Path(__file__).with_name("generated") / "engine_types.jsonl"


def engines_with(model_type: str) -> tuple[str, ...]:
    """Those of vLLM, SGLang and llama.cpp that list a class of the type; none for a type that
    arch/ does not know."""
    return _engines().get(model_type, ())


@lru_cache
def _engines() -> dict[str, tuple[str, ...]]:
    _versions, *lines = _TABLE.read_text(encoding="utf-8").splitlines()
    return {row["model_type"]: tuple(row["engines"]) for row in map(json.loads, lines)}
