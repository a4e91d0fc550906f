"""A class in `architectures` that is none of the config's model_type.

transformers' auto classes go by `model_type`, engines by `architectures`: a file whose two words
disagree is another model in each.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from .built_classes import class_name, classes_of_type
from .class_defaults import class_defaults
from .nested import is_known, type_by_class
from .our_types import base_type
from .registry import architecture_of, standard_spelling


class ForeignClass(NamedTuple):
    """The class `name` beside a `model_type` that has none of that name; `other` is the type that
    it belongs to, one that lineages describe, and None where nobody knows it."""

    name: str
    model_type: str
    other: str | None

    @property
    def clause(self) -> str:
        """Why what the model holds cannot be known."""
        if self.other is None:
            return f"{self.name} is no class of model_type {self.model_type!r} that is known"
        return f"model_type is {self.model_type!r}, and {self.name} a class of {self.other!r}"


def foreign_class(config: Mapping[str, Any], model_type: str) -> ForeignClass | None:
    """The first class that `config` names, where transformers has the type and no such class of it.
    None for the types of code that comes with a model: what their classes are called, nobody says.
    """
    name, own = class_name(config)[:80], base_type(model_type)
    classes = classes_of_type(own)
    if not name or not classes or name.casefold() in map(str.casefold, classes):
        return None
    other = type_by_class(config)
    if other is None or not is_known(other):
        return None if _is_described(own, name) else ForeignClass(name, model_type, None)
    return None if _is_kin(config, own, other) else ForeignClass(name, model_type, other)


def _is_described(own: str, name: str) -> bool:
    """Whether the type's own body has the very class (GPT2LMHeadCustomModel)."""
    found = architecture_of(own)
    body = found.body if found else None
    return body is not None and name in body.classes


def _is_kin(config: Mapping[str, Any], own: str, other: str) -> bool:
    """Whether the types differ in name alone, share a config's class (GPT-SW3 and GPT-2), or the
    one is a part of the other."""
    found, one, two = architecture_of(own), class_defaults(own), class_defaults(other)
    if standard_spelling(other) == own or (found is not None and other in found.types):
        return True
    if one is not None and two is not None and one.class_name == two.class_name:
        return True
    return other in {*_nested_types(config), *_nested_types(one.defaults if one else {})}


def _nested_types(config: Mapping[str, Any]) -> Iterator[str]:
    for value in config.values():
        if isinstance(value, dict) and isinstance(value.get("model_type"), str):
            yield value["model_type"]
