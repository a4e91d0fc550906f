"""Defaults of transformers' config classes, read from a generated table (tools/class_defaults.py).

A key that config.json leaves out takes its class's default: 8 K/V heads in Mistral, a head_dim of
256 in Gemma. The table holds, below the library's version, one JSON line per model_type, and only
the line asked for is parsed.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

_TABLE = Path(__file__).with_name("generated") / "class_defaults.jsonl"


class ClassDefaults(NamedTuple):
    """`attribute_map` maps the standard name of a field to the class's own (gpt2: n_embd). Of a
    file with both the class takes the standard one, but for the names in `own_first`."""

    class_name: str
    attribute_map: dict[str, str]
    defaults: dict[str, Any]
    own_first: tuple[str, ...] = ()


@cache
def class_defaults(model_type: str) -> ClassDefaults | None:
    """What transformers' config class for `model_type` declares; None if it has no such class."""
    text = _TABLE.read_bytes()
    start = text.find(b'{"model_type":' + json.dumps(model_type).encode() + b",")
    if start < 0:
        return None
    line = json.loads(text[start : text.index(b"\n", start)])
    return ClassDefaults(
        class_name=line["class"],
        attribute_map=line.get("attribute_map", {}),
        defaults=line.get("defaults", {}),
        own_first=tuple(line.get("own_first", ())),
    )
