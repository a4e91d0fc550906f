"""Write arch/generated/model_classes.jsonl: the classes that transformers' auto classes take.

A plan names the classes that load its output, and is made without importing transformers. So this
script reads them off the installed version, which the first line names, one line a model_type that
generates text:

    {"model_type": "bart", "AutoConfig": "BartConfig", "AutoModel": "BartModel", ...,
     "tasks": {"AutoModelForSequenceClassification": "BartForSequenceClassification", ...}}

    python tools/model_classes.py           # write the file
    python tools/model_classes.py --check   # exit 1 if the file is not what transformers says
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import transformers
from transformers.models.auto import configuration_auto

# Tokenizers that need sentencepiece are named whether it is installed here or not.
vars(transformers.utils)["is_sentencepiece_available"] = lambda: True
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES  # noqa: E402

TARGET = Path(__file__).parent.parent / "arch" / "generated" / "model_classes.jsonl"
_GENERATE = ("AutoModelForCausalLM", "AutoModelForSeq2SeqLM", "AutoModelForSpeechSeq2Seq")
_AUTOS = ("AutoModel", *_GENERATE, "AutoModelForTextToWaveform")
# Heads that are trained on top of such a model.
_TASKS = tuple(
    f"AutoModelFor{task}"
    for task in ("SequenceClassification", "TokenClassification", "QuestionAnswering")
)
_CONFIGS = vars(configuration_auto)["CONFIG_MAPPING_NAMES"]


def lines() -> Iterator[str]:
    """The content of the file: the version, then the types by name."""
    yield _line({"versions": {"transformers": transformers.__version__}})
    generating = {found for auto in _GENERATE for found in _names(auto)}
    names: dict[str, dict[str, str]] = {}
    for auto in _AUTOS:
        for model_type, name in _names(auto).items():
            if model_type in generating:
                names.setdefault(_own_type(model_type, name), {})[auto] = name
    for model_type, found in sorted(names.items()):
        classes: dict[str, Any] = {"AutoConfig": _CONFIGS[model_type], **found}
        tokenizer = TOKENIZER_MAPPING_NAMES.get(model_type)
        if isinstance(tokenizer, str):
            classes["AutoTokenizer"] = tokenizer
        tasks = {auto: _names(auto).get(model_type) for auto in _TASKS}
        classes["tasks"] = {auto: name for auto, name in tasks.items() if isinstance(name, str)}
        yield _line({"model_type": model_type, **classes})


def _line(row: dict[str, Any]) -> str:
    return json.dumps(row, separators=(",", ":")) + "\n"


def _names(auto: str) -> dict[str, Any]:
    return dict(getattr(transformers, auto)._model_mapping._model_mapping)


def _own_type(model_type: str, name: Any) -> str:
    """The type of the config that the class is made from: a mapping may name a language model by
    the type that nests it (MusicGen)."""
    config = getattr(transformers, _CONFIGS[model_type])
    if not config.sub_configs or not isinstance(name, str):
        return model_type
    return str(getattr(transformers, name).config_class.model_type)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    text = "".join(lines())
    if not parser.parse_args().check:
        TARGET.write_text(text)
        return 0
    if TARGET.read_text() == text:
        return 0
    print(f"{TARGET} is not what transformers {transformers.__version__} says", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
