"""Values of a quantisation's settings: read, bounded, and refused by name."""

from collections.abc import Mapping
from typing import Any

from headcount.model.errors import InvalidConfigError, short
from headcount.model.numbers import whole

from ..modules.module import IN_LAYERS, LINEAR, Module
from .exceptions import ModuleList, names_under
from .format import Format
from .scheme import Choice, UnknownFormatError

Settings = Mapping[str, Any]
SKIPPED = (
    *("modules_to_not_convert", "ignore", "ignored_layers"),
    *("llm_int8_skip_modules", "skip_modules"),
)


def size(value: object) -> int | None:
    """A number of weights or bits; None for anything else."""
    number = whole(value)
    return number if number is not None and 0 < number < 2**20 else None


def width(settings: Settings, key: str = "bits", otherwise: int | None = None) -> int:
    """Bits of a code. Raises UnknownFormatError for none that a file could hold."""
    given = settings.get(key, otherwise)
    bits = size(given)
    if bits is None or bits > 8:
        raise UnknownFormatError(f"its quantization_config says {key} {short(given)}")
    return bits


def group(settings: Settings, key: str = "group_size", otherwise: int = 128) -> int | None:
    """Weights to a scale; None for a whole row, which files write as -1 or null.

    Raises InvalidConfigError."""
    given = settings.get(key, otherwise)
    if given is None or whole(given) == -1:
        return None
    found = size(given)
    if found is None:
        raise InvalidConfigError(
            f"config.json: quantization_config.{key} is {short(given)}; a number of weights, or -1,"
            " is expected"
        )
    return found


def table(settings: Settings, key: str) -> Settings:
    """An object, empty where there is none."""
    found = settings.get(key)
    return found if isinstance(found, Mapping) else {}


def layers_only(settings: Settings, form: Format, *keys: str) -> Choice:
    """All linear layers inside the decoder's layers, but for those that are named."""
    kept = ModuleList(names_under(settings, *(keys or SKIPPED)))
    return lambda module, names: None if module.kind not in IN_LAYERS or kept.holds(names) else form


def all_linear(settings: Settings, form: Format, *, head: bool) -> Choice:
    """All linear layers, those of towers and perhaps the head among them, but for those that are
    named; a tower stays whole where any of it does."""
    kept = ModuleList(names_under(settings, *SKIPPED))
    return lambda module, names: form if may_be(module, names, kept, head=head) else None


def may_be(module: Module, names: tuple[str, ...], kept: ModuleList, *, head: bool) -> bool:
    """Whether a linear layer is none of those that are kept."""
    if module.kind not in LINEAR or (module.kind == "head" and not head):
        return False
    if module.kind == "tower" and kept.holds_towers:
        return False
    return not kept.holds(names)
