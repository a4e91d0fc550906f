"""Write arch/generated/not_loaded.jsonl: names in files that a class of transformers leaves out.

Published files hold more than a class builds: layers that predict further tokens, masks, a table
that T5's first release had. A class says which of them it expects (`_keys_to_ignore_on_load_\
unexpected`), as regular expressions, and an audit need not warn of these. The first line names the
version, then comes one line a class:

    {"class": "T5ForConditionalGeneration", "names": ["decoder.block.0.layer.1.EncDec..."]}

    python tools/not_loaded.py           # write the file
    python tools/not_loaded.py --check   # exit 1 if the file is not what transformers says
"""

import argparse
import importlib
import json
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import transformers
from transformers import PreTrainedModel, models

TARGET = Path(__file__).parent.parent / "arch" / "generated" / "not_loaded.jsonl"


def lines() -> Iterator[str]:
    """The content of the file: the version, then the classes by name."""
    yield _line({"versions": {"transformers": transformers.__version__}})
    found = {name: sorted(names) for module in _modules() for name, names in _classes(module)}
    for name, names in sorted(found.items()):
        yield _line({"class": name, "names": names})


def _modules() -> Iterator[ModuleType]:
    """All modelling files, but for those that need what is not installed."""
    for folder in pkgutil.iter_modules(models.__path__, f"{models.__name__}."):
        package = importlib.import_module(folder.name)
        for file in pkgutil.iter_modules(getattr(package, "__path__", [])):
            if file.name.startswith("modeling_"):
                try:
                    yield importlib.import_module(f"{folder.name}.{file.name}")
                except ImportError as error:
                    print(f"left out: {file.name}: {error}", file=sys.stderr)


def _classes(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Those of models that a config names, not what they are made of."""
    for name, found in vars(module).items():
        if not isinstance(found, type) or not issubclass(found, PreTrainedModel):
            continue
        names = found._keys_to_ignore_on_load_unexpected
        is_whole = found.__module__ == module.__name__ and not name.endswith("PreTrainedModel")
        if names and is_whole:
            yield name, names


def _line(row: dict[str, Any]) -> str:
    return json.dumps(row, separators=(",", ":")) + "\n"


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
