"""Write arch/generated/lineages.json: which file of arch/ describes each type.

Run with the package installed: python tools/lineages.py
"""

import json
from importlib import import_module
from pathlib import Path

import headcount

ROOT = Path(headcount.__file__).parent / "arch"
TARGET = Path(__file__).parent.parent / "arch" / "generated" / "lineages.json"
# Folders of lineages: every module in them has a list ARCHITECTURES.
ROOMS = ("decoders", "encoder_decoders", "encoders", "gpt", "hybrids", "multimodal")


def table() -> dict[str, dict[str, str]]:
    """Types, other spellings and GGUF architectures, each with its file or its type.

    Raises ValueError for one that two values claim."""
    found: dict[str, dict[str, str]] = {"types": {}, "spellings": {}, "gguf": {}}
    for module in modules():
        for one in import_module(f"headcount.arch.{module}").ARCHITECTURES:
            for name in one.types:
                _add(found["types"], name, module)
            for name in one.spellings:
                _add(found["spellings"], name, one.types[0])
            for form in one.gguf:
                _add(found["gguf"], form.architecture, module)
    return {kind: dict(sorted(names.items())) for kind, names in found.items()}


def modules() -> list[str]:
    """`decoders.llama` and its siblings."""
    files = (file for room in ROOMS for file in sorted((ROOT / room).glob("*.py")))
    return [f"{file.parent.name}.{file.stem}" for file in files if file.stem != "__init__"]


def _add(names: dict[str, str], name: str, value: str) -> None:
    if name in names:
        raise ValueError(f"{name} is in {names[name]} and in {value}")
    names[name] = value


if __name__ == "__main__":
    TARGET.write_text(json.dumps(table(), indent=0) + "\n", encoding="utf-8")
    print(f"{len(table()['types'])} types")
