"""Sizes that a config gives by names that its class does not have: transformers keeps such a key,
and builds the class's own size."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple

from headcount.model.numbers import whole
from headcount.model.spec import Origin

from ..class_defaults import class_defaults
from ..config_view import ConfigView
from ..nested import CORE
from ..size_names import EITHER_WIDTH, NAMES, OF_CLASSES, names_of
from .class_keys import is_unheard

# The names of each size but the number of K/V heads, of which rule H406 speaks.
_NAMES: dict[str, tuple[str, ...]] = {
    **{size: names_of(size) for size in NAMES if size != "num_key_value_heads"},
    **OF_CLASSES,
}
# Sizes of which a file may well give two: the tokenizer's beside the model's, with experts and
# without.
_TWICE = frozenset({"vocab_size", "max_position_embeddings", *OF_CLASSES})
_ALIKE = 0.9  # num_hidden_layer is so much like num_hidden_layers; mm_hidden_size is not


# Sizes that every file of a language model gives, and words of a key for K/V heads.
_EVERY = (*CORE, "vocab_size", "intermediate_size")
_OF_KEY_VALUE_HEADS = re.compile(r"(^|_)(kv_?(heads?|groups?)|gqa|gqa_\w+|\w+_gqa)(_|$)")
# What tells how large the layers of a nested object are.
_OF_LAYERS = (*names_of("hidden_size"), *names_of("num_hidden_layers"), "width", "depth", "n_state")
How = Literal["given", "by default", "derived"]


class Taken(NamedTuple):
    """What a class builds: `value` for its key `name`, which the file gives or not."""

    name: str
    value: int
    how: How


class UnreadSize(NamedTuple):
    """The file's `key` says `value`, and the class has `taken` for what it may mean."""

    key: str
    value: int
    taken: tuple[Taken, ...]


def unread_models(whole_view: ConfigView, text: ConfigView) -> tuple[str, ...]:
    """The keys of nested objects with sizes of layers that were not looked at while a total was
    counted. What a class nests itself is none: the total says what that class builds (Moshi's
    decoder alone)."""
    views = (whole_view, text)
    opened = {key for view in views for key in (*view.opened, *view.defaults)}
    found = {**whole_view.config, **text.config}
    return tuple(key for key, value in found.items() if key not in opened and _has_layers(value))


def _has_layers(value: Any) -> bool:
    return isinstance(value, dict) and any(whole(value.get(name)) for name in _OF_LAYERS)


def unread_experts(text: ConfigView) -> str | None:
    """A key for a number of experts, where none was looked at while a total was counted."""
    keys = OF_CLASSES["num_experts"]
    if any(_was_read(text, key) for key in keys):
        return None
    numbers = ((key, whole(text.config.get(key))) for key in keys)
    return next((key for key, number in numbers if number is not None and number > 1), None)


def _was_read(view: ConfigView, key: str) -> bool:
    return key in view.origins or any(
        origin.source.endswith(f"({key})") for origin in view.origins.values()
    )


def unread_sizes(view: ConfigView, *, nested: bool = False) -> Iterator[UnreadSize]:
    """Each size of `view` that its class does not read, unless it is what the class has anyway.

    A `nested` config leaves out what equals the defaults, so that only a known name of a size is
    one there."""
    own = {*view.defaults, *view.attribute_map, *view.attribute_map.values(), *view.unused}
    own |= {name for size, names in view.aliases.items() for name in (size, *names)}
    own |= {name for name, one in view.origins.items() if _is_read(view, name, one)}
    if class_defaults(view.model_type) is None:  # what is read of its files, standard names are
        own |= NAMES.keys()
    for key, given in view.config.items():
        value = None if key in own else whole(given)
        found = {} if value is None else _taken(view, key, own)
        if value is not None and not found and not nested:
            found = _left_to_the_class(view, key, own)
        if value is None or value in [one.value for one in found.values()]:
            continue
        told = tuple(one for size, one in found.items() if _is_in_doubt(key, size, one))
        if told:
            yield UnreadSize(key, value, told)


def _is_read(view: ConfigView, name: str, origin: Origin) -> bool:
    """Whether the architecture reads the file's key `name` for what it is: all ask for sizes."""
    return name not in NAMES and origin.source == view.where


def _taken(view: ConfigView, key: str, own: set[str]) -> dict[str, Taken]:
    """What the class has, by each size that `key` may be a name of."""
    sizes = [size for size, names in _NAMES.items() if key in names]
    if key in EITHER_WIDTH:
        sizes = ["hidden_size", "intermediate_size"]
    if not sizes:
        sizes = [size for size in _NAMES if _is_like(key, size)]
    if "qk_nope_head_dim" in own:  # latent attention has a width for each part of a head
        sizes = [size for size in sizes if size != "head_dim"]
    return _by_size(view, sizes, own)


def _by_size(view: ConfigView, sizes: Iterable[str], own: set[str]) -> dict[str, Taken]:
    found = {size: _of_class(view, size, own) for size in sizes}
    return {size: one for size, one in found.items() if one is not None}


def _is_like(key: str, size: str) -> bool:
    """Misspelt, and not a size of one part alone, as swa_head_dim."""
    shorter, both = min(len(key), len(size)), len(key) + len(size)
    if key.count("_") != size.count("_") or 2 * shorter < _ALIKE * both:
        return False
    from difflib import SequenceMatcher  # takes time to start, and few files need it

    return SequenceMatcher(None, key, size).ratio() >= _ALIKE


def _left_to_the_class(view: ConfigView, key: str, own: set[str]) -> dict[str, Taken]:
    """What the file does not give of the sizes that every file gives, where a key that no class
    has gives a number; and what such a key says of K/V heads."""
    if _OF_KEY_VALUE_HEADS.search(key):
        return {} if key in names_of("num_key_value_heads") else _key_value_heads(view)
    taken = _by_size(view, _EVERY, own) if is_unheard(key) else {}
    return {
        size: one
        for size, one in taken.items()
        if one.how == "by default" and not _says(view, size, one.value)
    }


def _says(view: ConfigView, size: str, value: int) -> bool:
    """Whether the file gives the default of `size` under another of its names (JetMoE)."""
    return any(whole(view.config.get(name)) == value for name in _NAMES[size])


def _key_value_heads(view: ConfigView) -> dict[str, Taken]:
    origin = view.origins.get("num_key_value_heads")
    value = None if origin is None else whole(origin.value)
    if origin is None or value is None or origin.source.startswith(view.where):
        return {}
    derived = origin.source.startswith("derived")
    how: How = "derived" if derived else "by default"
    return {"num_key_value_heads": Taken("num_key_value_heads", value, how)}


def _of_class(view: ConfigView, size: str, own: set[str]) -> Taken | None:
    """None where the class has no such size, or no number that is known for it."""
    names = [name for name in _NAMES.get(size, (size,)) if name in own]
    for name in names:
        value = whole(view.config.get(name))
        if value is not None:
            return Taken(name, value, "given")
    for name in names:
        value = whole(view.defaults.get(name))
        if value is not None:
            return Taken(name, value, "by default")
    origin = view.origins.get(size) if names else None
    value = whole(origin.value) if origin is not None else None
    derived = origin is not None and origin.source.startswith("derived")
    return Taken(names[0], value, "derived") if value is not None and derived else None


def _is_in_doubt(key: str, size: str, taken: Taken) -> bool:
    """Whether `key` may mean that the class were built otherwise: not the one of two widths that
    the file does not give by its own name."""
    return taken.how != "given" or (size not in _TWICE and key not in EITHER_WIDTH)
