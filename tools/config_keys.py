"""Write arch/generated/config_keys.json: the keys of the config classes of transformers' decoders
and encoders that have attention in each layer.

A key that none of them has may say anything of a type that nothing describes, so that a report
names it. Run with the package installed:

    python tools/config_keys.py           # write the file
    python tools/config_keys.py --check   # exit 1 if the file is not what transformers says
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from transformers import CONFIG_MAPPING, PreTrainedConfig, __version__
from transformers import logging as transformers_logging

from headcount.arch.registry import index

TARGET = Path(__file__).parent.parent / "arch" / "generated" / "config_keys.json"
# Rooms of arch/ whose lineages have attention in each layer, and no second stack.
ROOMS = ("decoders", "encoders", "gpt")


def table() -> dict[str, object]:
    """The library's version and the keys by name."""
    transformers_logging.set_verbosity_error()
    return {"versions": {"transformers": __version__}, "keys": sorted(set(_keys()))}


def _keys() -> Iterator[str]:
    for model_type, module in index()["types"].items():
        if module.split(".")[0] in ROOMS and model_type in CONFIG_MAPPING:
            yield from _of_class(CONFIG_MAPPING[model_type])


def _of_class(cls: type[PreTrainedConfig]) -> Iterator[str]:
    yield from (field.name for field in dataclasses.fields(cls))
    for standard, own in cls.attribute_map.items():
        yield from (standard, own)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    text = json.dumps(table(), indent=0) + "\n"
    if not parser.parse_args().check:
        TARGET.write_text(text, encoding="utf-8")
        return 0
    if TARGET.read_text(encoding="utf-8") == text:
        return 0
    print(f"{TARGET.name} is out of date; run tools/config_keys.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
