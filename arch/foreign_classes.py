"""A class in `architectures` that is none of the config's model_type.

transformers' auto classes go by `model_type`, engines by `architectures`: a file whose two words
disagree is another model in each.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from .architecture import Architecture
from .built_classes import class_name, classes_of_type, type_by_class
from .class_defaults import class_defaults
from .model_classes import model_classes
from .our_types import base_type
from .registry import architecture_of, is_known, standard_spelling


class ForeignClass(NamedTuple):
    """The class `name` beside a `model_type` that has none of that name; `other` is the type that
    it belongs to, one that lineages describe, and None where nobody knows it. `part` is the nested
    config that says so, "" for the whole."""

    name: str
    model_type: str
    other: str | None
    part: str = ""

    @property
    def clause(self) -> str:
        """Why what the model holds cannot be known."""
        of = f"of its {self.part}, " if self.part else ""
        if self.other is None:
            return f"{of}{self.name} is no class of model_type {self.model_type!r} that is known"
        return f"{of}model_type is {self.model_type!r}, and {self.name} a class of {self.other!r}"


def foreign_class(config: Mapping[str, Any], model_type: str) -> ForeignClass | None:
    """The first class that `config` names, where it is none of the type. Of a type that
    transformers has no class for, only a class of a type that is known here: what those are called
    that come with a model, nobody says."""
    name, own = class_name(config)[:80], base_type(model_type)
    classes = (*classes_of_type(own), *model_classes(own).values())
    if not name or name.casefold() in map(str.casefold, classes) or _is_described(own, name):
        return None
    other = type_by_class(config)
    other = other if other is not None and is_known(other) else None
    if not classes and (other is None or not is_known(own) or config.get("auto_map")):
        return None
    if other is None:
        return ForeignClass(name, model_type, None)
    return None if _is_kin(config, own, other) else ForeignClass(name, model_type, other)


def foreign_parts(config: Mapping[str, Any], where: str = "") -> Iterator[ForeignClass]:
    """Those that the nested configs of `config` name, of other types that are known: transformers
    goes by their model_type, and takes no notice of a name that nobody knows."""
    for key, inner in config.items():
        if not isinstance(inner, Mapping):
            continue
        part, model_type = f"{where}{key}", inner.get("model_type")
        found = foreign_class(inner, model_type) if isinstance(model_type, str) else None
        if found is not None and found.other is not None:
            yield found._replace(part=part)
        yield from foreign_parts(inner, f"{part}.")


def _is_described(own: str, name: str) -> bool:
    """Whether the type's own body has the very class (GPT2LMHeadCustomModel)."""
    found = architecture_of(own)
    body = found.body if found else None
    return body is not None and name in body.classes


def _is_kin(config: Mapping[str, Any], own: str, other: str) -> bool:
    """Whether the types differ in name alone, share a config's class (GPT-SW3 and GPT-2) or all of
    their attention where code that comes with the model has it (DeepSeek-OCR), or the one is a part
    of the other."""
    found, one, two = architecture_of(own), class_defaults(own), class_defaults(other)
    if standard_spelling(other) == own or (found is not None and other in found.types):
        return True
    if one is not None and two is not None and one.class_name == two.class_name:
        return True
    if found is not None and not classes_of_type(own) and _attends_alike(found, other):
        return True
    parts = {*_nested_types(config), *_nested_types(one.defaults if one else {})}
    return other in parts or own in _nested_types(two.defaults if two else {})


def _attends_alike(found: Architecture, other: str) -> bool:
    two = architecture_of(other)
    return other == found.config.read_as or (two is not None and two.attention == found.attention)


def _nested_types(config: Mapping[str, Any]) -> Iterator[str]:
    for value in config.values():
        if isinstance(value, dict) and isinstance(value.get("model_type"), str):
            yield value["model_type"]
