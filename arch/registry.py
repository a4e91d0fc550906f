"""Where the architecture of a `model_type` is: in the one file of its lineage.

`generated/lineages.json` maps every type, and every architecture of GGUF files, to that file
(tools/lineages.py), so that only the file that is asked for is imported.
"""

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .architecture import Architecture
from .our_types import base_type

if TYPE_CHECKING:
    from .gguf.form import Gguf

_INDEX = Path(__file__).with_name("generated") / "lineages.json"


def architecture_of(model_type: str) -> Architecture | None:
    """The architecture of `model_type`, or of the type that it is another spelling of; None for a
    type that no lineage has."""
    name = standard_spelling(model_type)
    module = index()["types"].get(name)
    return None if module is None else _by_type(module)[name]


def is_known(model_type: str) -> bool:
    """Whether a lineage describes `model_type`."""
    return architecture_of(base_type(model_type)) is not None


def near_types(model_type: str) -> tuple[str, ...]:
    """Types that are spelt nearly like one that no lineage has, the nearest first."""
    from difflib import get_close_matches  # slow to import, and only what is unknown wants it

    return tuple(get_close_matches(model_type, index()["types"], n=3, cutoff=0.75))


def standard_spelling(model_type: str) -> str:
    """The type that `model_type` is another spelling of; any other is its own."""
    return index()["spellings"].get(model_type, model_type)


@lru_cache
def index() -> dict[str, dict[str, str]]:
    """The generated table: types, other spellings and GGUF architectures."""
    found: dict[str, dict[str, str]] = json.loads(_INDEX.read_bytes())
    return found


@lru_cache
def _by_type(module: str) -> dict[str, Architecture]:
    return {name: one for one in lineage(module) for name in one.types}


def gguf_of(architecture: str) -> "Gguf":
    """How llama.cpp keeps the state of a GGUF file's `general.architecture`."""
    from .gguf.form import Gguf

    module = index()["gguf"].get(architecture)
    plain = Gguf(architecture=architecture)
    return plain if module is None else _by_gguf(module)[architecture]


@lru_cache
def _by_gguf(module: str) -> "dict[str, Gguf]":
    return {form.architecture: form for one in lineage(module) for form in one.gguf}


def lineage(module: str) -> tuple[Architecture, ...]:
    """The architectures of one file, such as `decoders.llama`."""
    found: Any = import_module(f".{module}", __package__)
    architectures: tuple[Architecture, ...] = found.ARCHITECTURES
    return architectures


class Registry(Mapping[str, Architecture]):
    """All architectures by their types. A lineage is imported when one of its types is asked for;
    `in` and iteration import none."""

    def __getitem__(self, model_type: str) -> Architecture:
        if model_type not in self:
            raise KeyError(model_type)
        found = architecture_of(model_type)
        assert found is not None
        return found

    def __contains__(self, model_type: object) -> bool:
        return model_type in _types()

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(_types()))

    def __len__(self) -> int:
        return len(_types())


@lru_cache
def _types() -> frozenset[str]:
    return frozenset(index()["types"])


ARCHITECTURES: Mapping[str, Architecture] = Registry()
