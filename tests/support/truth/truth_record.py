"""The record of what transformers builds and caches, `tests/truth/*.jsonl`: how it is written down.

The first line of a file says what made it; then one line a config. Equal neighbours are counted:
`layers` is a list of [how many, stack, parameters of each mixer by part], and what a cache holds
after a number of tokens a list of [how many layers, elements]. Needs neither torch nor
transformers. `tools/record_truth.py` writes the files.
"""

import itertools
import json
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from headcount.sources.catalogue import catalogue, read_entry

Line = dict[str, Any]

FOLDER = Path(__file__).parents[2] / "truth"
ENCODER_TOKENS = 7  # what cross-attention sees in every run
CLASS_TOKENS = 9  # what each class of a type is given
FILES = {
    "decoders": "causal language models: parameters of each mixer, and their cache",
    "encoder_decoders": "the same of models with two stacks",
    "encoders": "the same of masked language models",
    "multimodal": "the same of the language models that multimodal types nest",
    "towers": "parameters of each mixer of models that keep nothing",
    "states": "models whose layers keep more than keys and values: parameters, and state by kind",
    "totals": "all parameters of whole models, and those of experts that a token does not visit",
    "classes": "every class of each type: all parameters, attention, elements of the cache",
    "catalogue": "the models of the catalogue: parameters, cache and total",
    "left_out": "types that are not recorded, and why",
}


def path_of(name: str) -> Path:
    return FOLDER / f"{name}.jsonl"


@cache
def recorded(name: str) -> tuple[Line, ...]:
    """The lines of a file but for its first."""
    return tuple(json.loads(line) for line in path_of(name).read_text("utf-8").splitlines()[1:])


def header(name: str) -> Line:
    with path_of(name).open(encoding="utf-8") as file:
        first: Line = json.loads(file.readline())
    return first


def key_of(line: Line) -> str:
    """What a line is of: a model_type, or the name of a model of the catalogue."""
    key: str = line.get("model") or line["model_type"]
    return key


def catalogue_models() -> list[str]:
    """What the catalogue has a config of: its models, and the checkpoints whose own it knows."""
    return [
        name
        for row in catalogue()
        for name in (row.id, *row.checkpoints)
        if name == row.id or read_entry(row, name).changes is not None
    ]


def written(line: Line) -> str:
    return json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n"


def counted(values: Iterable[Any]) -> list[list[Any]]:
    """Equal neighbours once, each with its number in front."""
    return [[len(list(same)), value] for value, same in itertools.groupby(values)]


def spelled_out(pairs: Iterable[tuple[int, Any]]) -> list[Any]:
    """`counted` undone."""
    return [value for number, value in pairs for _ in range(number)]


def layers_of(line: Line) -> Iterator[tuple[str, list[dict[str, int]]]]:
    """(stack, parameters of each mixer by part) of each layer in order."""
    for number, stack, mixers in line["layers"]:
        for _ in range(number):
            yield stack, mixers
