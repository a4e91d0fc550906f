"""The classes that transformers' auto classes take, from a generated table
(tools/model_classes.py): a plan names them without importing transformers."""

import json
import re
from pathlib import Path
from typing import Any

# What the modelling file of a conversion calls a class of transformers, in front of its name.
GROUPED_CLASS = "Grouped"
LATENT_CLASS = "Latent"
_TABLE = Path(__file__).with_name("generated") / "model_classes.jsonl"
_OF_MODELS = ("AutoConfig", "AutoModel")
_TASK = re.compile(r"For[A-Z]\w*$")


def model_classes(model_type: str) -> dict[str, str]:
    """Auto class -> class, such as AutoConfig -> BartConfig; empty for a type that generates no
    text with a class of transformers."""
    return {auto: name for auto, name in _line(model_type).items() if auto.startswith(_OF_MODELS)}


def task_classes(model_type: str) -> dict[str, str]:
    """Auto class -> class with a head that is trained on top of such a model, such as
    AutoModelForSequenceClassification -> BartForSequenceClassification."""
    return dict(_line(model_type).get("tasks", {}))


def tokenizer_class(model_type: str) -> str | None:
    """The tokenizer that transformers takes where no file beside the weights names one."""
    found: str | None = _line(model_type).get("AutoTokenizer")
    return found


def _line(model_type: str) -> dict[str, Any]:
    start = f'{{"model_type":{json.dumps(model_type)},'
    for line in _TABLE.read_text(encoding="utf-8").splitlines():
        if line.startswith(start):
            found: dict[str, Any] = json.loads(line)
            return found
    return {}


def auto_class(name: str, classes: dict[str, str]) -> str | None:
    """The auto class that takes the class `name`; None if that cannot be told."""
    known = next((auto for auto, taken in classes.items() if taken == name), None)
    task = _TASK.search(name)
    return known or (f"AutoModel{task[0]}" if task else None)


def base_class(name: str) -> str:
    """The class of which one of ours changes the attention; any other is its own base."""
    return name.removeprefix(GROUPED_CLASS).removeprefix(LATENT_CLASS)
