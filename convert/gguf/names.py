"""Names of tensors as llama.cpp has them, by the package `gguf`."""

import re
from collections.abc import Callable

from gguf import MODEL_ARCH, MODEL_ARCH_NAMES, get_tensor_name_map

# What stands in front of a base model's names in the files of its class, and the other way round.
_WORDS = ("model", "transformer", "gpt_neox")
_SUFFIXES = (".weight", ".bias")
_NUMBERED = re.compile(r"\.norms\.([0-9]{1,5})(?=\.)", re.ASCII)
_LAYER = re.compile(r"(?<=blk\.)[0-9]+\.", re.ASCII)


def names_of(architecture: str, layers: int) -> Callable[[str], str | None]:
    """What gives the name in the file for one in a checkpoint; None where llama.cpp has none."""
    numbers = {name: number for number, name in MODEL_ARCH_NAMES.items()}
    table = get_tensor_name_map(MODEL_ARCH(numbers[architecture]), layers)

    def found(name: str) -> str | None:
        spelled = (name, *(f"{word}.{name}" for word in _WORDS), name.partition(".")[2])
        known = (table.get_name(one, try_suffixes=_SUFFIXES) for one in spelled if one)
        return next((one for one in known if one is not None), None)

    return found


def without_number(name: str) -> tuple[str, int | None]:
    """A name of a list of norms, one for each head, as that of all together; and the number."""
    found = _NUMBERED.search(name)
    if found is None:
        return name, None
    return name[: found.start()] + name[found.end() :], int(found[1])


def without_layer(name: str) -> str:
    """A name of the file without the number of its layer: `blk.attn_q.weight`."""
    return _LAYER.sub("", name)
