"""The classes that transformers' auto classes take, from a generated table
(tools/model_classes.py): a plan names them without importing transformers."""

import json
import re
from pathlib import Path

_TABLE = Path(__file__).with_name("model_classes.jsonl")
_TASK = re.compile(r"For[A-Z]\w*$")


def model_classes(model_type: str) -> dict[str, str]:
    """Auto class -> class, such as AutoConfig -> BartConfig; empty for a type that generates no
    text with a class of transformers."""
    start = f'{{"model_type":{json.dumps(model_type)},'
    for line in _TABLE.read_text(encoding="utf-8").splitlines():
        if line.startswith(start):
            return {auto: name for auto, name in json.loads(line).items() if auto != "model_type"}
    return {}


def auto_class(name: str, classes: dict[str, str]) -> str | None:
    """The auto class that takes the class `name`; None if that cannot be told."""
    known = next((auto for auto, taken in classes.items() if taken == name), None)
    task = _TASK.search(name)
    return known or (f"AutoModel{task[0]}" if task else None)
