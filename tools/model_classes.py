"""Write convert/plan/model_classes.jsonl: the classes that transformers' auto classes take.

A plan names the classes that load its output, and is made without importing transformers. So this
script reads them off the installed version, one line a model_type that generates text:

    {"model_type": "bart", "AutoConfig": "BartConfig", "AutoModel": "BartModel", ...}

    python tools/model_classes.py           # write the file
    python tools/model_classes.py --check   # exit 1 if the file is not what transformers says
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import transformers
from transformers.models.auto import configuration_auto

# Tokenizers that need sentencepiece are named whether it is installed here or not.
vars(transformers.utils)["is_sentencepiece_available"] = lambda: True
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES  # noqa: E402

TARGET = Path(__file__).parent.parent / "convert" / "plan" / "model_classes.jsonl"
_GENERATE = ("AutoModelForCausalLM", "AutoModelForSeq2SeqLM", "AutoModelForSpeechSeq2Seq")


def lines() -> Iterator[str]:
    """The content of the file."""
    autos = {auto: getattr(transformers, auto)._model_mapping for auto in ("AutoModel", *_GENERATE)}
    names = {auto: dict(mapping._model_mapping) for auto, mapping in autos.items()}
    for model_type in sorted({found for auto in _GENERATE for found in names[auto]}):
        classes = {"AutoConfig": vars(configuration_auto)["CONFIG_MAPPING_NAMES"][model_type]}
        classes |= {auto: found[model_type] for auto, found in names.items() if model_type in found}
        tokenizer = TOKENIZER_MAPPING_NAMES.get(model_type)
        if isinstance(tokenizer, str):
            classes["AutoTokenizer"] = tokenizer
        yield json.dumps({"model_type": model_type, **classes}, separators=(",", ":")) + "\n"


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
