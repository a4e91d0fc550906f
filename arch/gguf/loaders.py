"""Which tensors llama.cpp's loaders create, from a generated table (tools/gguf_tensors.py)."""

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

_TABLE = Path(__file__).parents[1] / "generated" / "gguf_tensors.jsonl"


class LoadedTensors(NamedTuple):
    """Names without the numbers of layers, such as `blk.attn_q.weight`: those that a loader needs,
    and those that it takes where they are there. It refuses a file with any other."""

    needs: frozenset[str]
    takes: frozenset[str]


def loaded_tensors(architecture: str) -> LoadedTensors:
    """Those of an architecture that `written.WRITTEN` describes."""
    return _rows()[architecture]


@lru_cache
def _rows() -> Mapping[str, LoadedTensors]:
    _versions, *lines = _TABLE.read_text(encoding="utf-8").splitlines()
    return {
        row["architecture"]: LoadedTensors(frozenset(row["needs"]), frozenset(row["takes"]))
        for row in map(json.loads, lines)
    }
