"""What the class that `architectures` names builds, against the base class of its type.

A classifier has a head over labels, `T5EncoderModel` no decoder. The facts are read from a table
that transformers' own classes fill (tools/built_classes.py), whose first lines say how.
"""

import json
import math
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from headcount.model.errors import InvalidConfigError
from headcount.model.spec import Layer

from .body.uncounted import unknown_class
from .config_view import ConfigView
from .model_classes import base_class
from .our_types import base_type
from .registry import ARCHITECTURES, architecture_of, standard_spelling

_TABLE = Path(__file__).with_name("generated") / "built_classes.jsonl"
# What a class's name says beside its type.
_TASK = re.compile(r"(For[A-Z]\w*|(LMHead|DoubleHeads|Encoder|Decoder|Text|With\w+)?Model)$")
_LABELS = 2  # where a config names none


class BuiltClass(NamedTuple):
    """A class beside its type's `base`, the class of AutoModel: the stacks that it is `without`,
    and what it holds more, as numbers times keys of the config.

    `terms` is None where the table cannot tell; `own_layers`: it builds others than the base.
    """

    name: str
    base: str
    without: tuple[str, ...]
    terms: tuple[tuple[int, tuple[str, ...]], ...] | None
    own_layers: bool = False

    def layers(self, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
        """Those of `layers`, which the base class builds, that this class builds, too."""
        return tuple(layer for layer in layers if layer.stack not in self.without) or layers

    @property
    def may_lack_tokens(self) -> bool:
        """Whether a vocabulary of the base class may be missing: an encoder of sound alone."""
        lacks = self.terms is None or any(n < 0 and "vocab_size" in keys for n, keys in self.terms)
        return bool(self.without) and lacks

    def more(self, view: ConfigView) -> int:
        """Parameters beside those of the base class, less those of the stacks that are not built
        but for their layers. Raises InvalidConfigError for an impossible size and UncountedError
        where the table does not tell."""
        if self.terms is None:
            raise unknown_class((self.name,))
        return sum(n * math.prod(_factor(view, key) for key in keys) for n, keys in self.terms)


def built_class(view: ConfigView) -> BuiltClass | None:
    """The class that the config is for, where it is one of transformers and not the base class of
    the config's type. Of a class of another type the stacks are told, and what it holds where the
    two differ in nothing but their name (T5 and mT5)."""
    name, own = class_name(view.config), standard_spelling(base_type(view.model_type))
    model_type = own if name in _row(own).get("classes", ()) else type_of_class(name)
    row, base = _row(model_type or ""), _row(own).get("base")
    if base is None or name not in row.get("classes", ()):
        return None
    form = _form(row["classes"][name], view)
    terms = form.get("terms") if _alike(own, model_type) else None
    return BuiltClass(
        name=name,
        base=base,
        without=tuple(form.get("without", ())),
        terms=None if terms is None else tuple((n, tuple(keys)) for n, *keys in terms),
        own_layers=form.get("own_layers", False),
    )


def _alike(own: str, model_type: str | None) -> bool:
    found = architecture_of(own)
    return found is not None and model_type in found.types


def class_name(config: Mapping[str, Any]) -> str:
    """The first of `architectures`, without what our own modelling file puts in front; "" where
    there is none."""
    names = config.get("architectures")
    first = names[0] if isinstance(names, list) and names else None
    return base_class(first) if isinstance(first, str) else ""


def type_of_class(name: str) -> str | None:
    """The model_type of the configs that transformers' class `name` reads; None if it has none."""
    text, word = _table(), json.dumps(name).encode()
    place = max(text.find(b'"base":' + word), text.find(word + b":"))
    if place < 0:
        return None
    row = json.loads(text[text.rindex(b"\n", 0, place) + 1 : text.index(b"\n", place)])
    found: str = row.get("model_type")
    return found if name in (row.get("base"), *row.get("classes", ())) else None


def type_by_class(config: Mapping[str, Any]) -> str | None:
    """The type that `architectures` tells, where a config has no model_type."""
    name = class_name(config)
    known = type_of_class(name)
    if known is not None or not name:
        return known
    stem = _TASK.sub("", name).lower()
    return next((t for t in ARCHITECTURES if t.replace("_", "").replace("-", "") == stem), None)


def classes_of_type(model_type: str) -> tuple[str, ...]:
    """The classes that transformers has for `model_type`, its base class first; empty for a type
    that is not its own, or by another of its spellings."""
    row = _row(model_type)
    return (row["base"], *row["classes"]) if row.get("base") else ()


def roots_of_class(model_type: str, name: str) -> frozenset[str]:
    """The words that all names of a file may begin with, for the class `name` of `model_type` to
    find them; of a class that is not known those of all. Empty where transformers does not say."""
    row = _row(model_type)
    shared, own = row.get("roots", ()), row.get("own_roots", {})
    known = own.get(name, []) if name in classes_of_type(model_type) else None
    found = known if known is not None else [root for more in own.values() for root in more or ()]
    return frozenset((*shared, *found))


def label_count(view: ConfigView) -> int:
    """How many labels a classifier has: names in `id2label`, else `num_labels`, else 2."""
    names = view.config.get("id2label")
    if isinstance(names, dict):
        return len(names)
    if names is not None:
        raise InvalidConfigError(f"{view.where}: id2label must be an object with a name per label")
    count = view.optional("num_labels", minimum=0)
    return _LABELS if count is None else count


@lru_cache
def _table() -> bytes:
    return b"\n" + _TABLE.read_bytes()


@lru_cache
def _row(model_type: str) -> dict[str, Any]:
    text = _table()
    start = text.find(b'{"model_type":' + json.dumps(model_type).encode() + b",")
    row: dict[str, Any] = {} if start < 0 else json.loads(text[start : text.index(b"\n", start)])
    return row


def _form(forms: Any, view: ConfigView) -> dict[str, Any]:
    """Some classes build what `is_encoder_decoder` says, or take one of its values alone."""
    if isinstance(forms, list):
        both = view.flag("is_encoder_decoder")
        forms = next((form for form in forms if form["is_encoder_decoder"] is both), {})
    found: dict[str, Any] = forms
    return found


def _factor(view: ConfigView, key: str) -> int:
    if key[0] in "?!":
        return bool(_value(view, key[1:])) is (key[0] == "?")
    if key == "num_labels":
        return label_count(view)
    holder, name = _holder(view, key)
    return holder.integer(name, minimum=0)


def _value(view: ConfigView, key: str) -> Any:
    holder, name = _holder(view, key)
    return holder.get(name)


def _holder(view: ConfigView, key: str) -> tuple[ConfigView, str]:
    """The view of the nested config that a dotted key names, and the key in it."""
    first, _, rest = key.partition(".")
    return _holder(view.child(first), rest) if rest else (view, first)
