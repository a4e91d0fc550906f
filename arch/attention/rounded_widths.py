"""Classes of transformers that round hidden_size / num_attention_heads down to a head_dim, from a
generated table (tools/rounded_widths.py)."""

import json
from functools import lru_cache
from pathlib import Path

from ..our_types import base_type

_TABLE = Path(__file__).parents[1] / "generated" / "rounded_widths.jsonl"


def rounds_down(model_type: str) -> bool:
    """Whether a model of the type runs with a width that its heads do not divide; False for a type
    that refuses it, and where it is not known."""
    return base_type(model_type) in _types()


@lru_cache
def _types() -> frozenset[str]:
    rows = map(json.loads, _TABLE.read_text(encoding="utf-8").splitlines())
    return frozenset(row["model_type"] for row in rows if row.get("rounds"))
