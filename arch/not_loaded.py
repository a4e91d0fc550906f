"""What a class of transformers expects in a file and does not load, from a generated table
(tools/not_loaded.py)."""

import json
import re
from pathlib import Path

_TABLE = Path(__file__).with_name("generated") / "not_loaded.jsonl"


def not_loaded(class_name: str) -> re.Pattern[str] | None:
    """An expression that finds them in the names of tensors; None where the class names none."""
    start = f'{{"class":{json.dumps(class_name)},'
    for line in _TABLE.read_text(encoding="utf-8").splitlines():
        if line.startswith(start):
            return re.compile("|".join(f"(?:{name})" for name in json.loads(line)["names"]))
    return None
