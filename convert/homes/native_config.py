"""The config of a model that stays in its class: the new number of K/V heads, and nothing else.

The architecture names the keys. What was written is read again like any config, so that
the heads of every layer are those that the class makes of it.
"""

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from headcount.arch.read_config import Reading, read_config
from headcount.arch.registry import architecture_of
from headcount.model.numbers import digits, whole

from ..plan.heads import Heads
from ..plan.refusals.counts import no_place, one_for_all
from ..plan.request import KeyValueHeads

# A key that says how many K/V heads there are, in any of its spellings.
_COUNT = re.compile(r"(key_value|kv)_heads?$|head_kv$")


class ConfigEditor:
    """Edits a copy of a config and tells every change; `where` is its path, for messages."""

    def __init__(self, config: Mapping[str, Any], where: str) -> None:
        self.where = where
        self.new: dict[str, Any] = deepcopy(dict(config))
        self.changes: list[str] = []
        self.reading: Reading = read_config(config, where)
        self.architecture = self.reading.architecture
        self.holder, self.prefix = language_model(self.new, where)

    def set_heads(self, wanted: KeyValueHeads) -> None:
        """Writes `wanted` K/V heads for all layers, or for some."""
        if isinstance(wanted, int):
            for key in self.architecture.attention.key_value_keys:
                self._set_count(key, wanted)
            self._limit_single_layers(wanted)
        else:
            self._set_single_layers(wanted)
        self._write_head_dim()

    def follow(self, counts: Mapping[int, set[int]]) -> None:
        """Other numbers of K/V heads that the file holds, for engines that read those, also at the
        top of a multimodal config: each count becomes what all attentions with as many have now."""
        places = {self.prefix: self.holder, "": self.new}
        for prefix, holder in places.items():
            keys = {key for key in holder if _COUNT.search(key)}
            if holder is self.holder:
                keys -= set(self.architecture.attention.key_value_keys)
            for key in sorted(keys):
                now = whole(holder[key])
                after = counts.get(now, set()) if now is not None else set()
                if len(after) == 1:
                    self._set(holder, prefix, key, next(iter(after)))

    def set_query_heads(self, heads: Heads) -> None:
        """Writes the new number of query heads, and the head_dim that no longer follows."""
        own = self.reading.text.attribute_map
        for name, value in (
            ("num_attention_heads", heads.padded_heads),
            ("head_dim", heads.head_dim),
        ):
            self._set(self.holder, self.prefix, own.get(name, name), value)

    def _set_count(self, key: str, wanted: int) -> None:
        """A count that is smaller already stays; a flag is on for one head."""
        holder, prefix, last = self._place(key)
        now = self._now(key)
        if now is None and key != self.architecture.attention.key_value_keys[0]:
            return  # a second number that is not in use
        if isinstance(now, bool):
            self._set(holder, prefix, last, wanted == 1 or now)
        elif now is None or now > wanted:
            self._set(holder, prefix, last, wanted)

    def _limit_single_layers(self, wanted: int) -> None:
        for index, values in self._single_layers().items():
            given = whole(values.get("num_key_value_heads"))
            if given is not None and given > wanted:
                place = f"{self.prefix}{self.architecture.attention.per_layer_key}.{index}."
                self._set(values, place, "num_key_value_heads", wanted)

    def _set_single_layers(self, wanted: Mapping[int, int]) -> None:
        key = self.architecture.attention.per_layer_key
        if key is None:
            raise one_for_all(self.where, self.reading.spec.model_type)
        entries = self._single_layers()
        known = {digits(index): index for index in entries}
        known.pop(None, None)
        width = max(map(len, known.values()), default=0)
        readers = {
            layer.index: wanted[owner]
            for layer in self.reading.spec.layers
            if (owner := layer.shares_cache_with) is not None and owner in wanted
        }
        every = {**wanted, **readers}
        attending = {la.index for la in self.reading.spec.layers if la.mixers}
        if every.keys() >= attending:  # nobody is left for whom the common number holds
            self._set_count(self.architecture.attention.key_value_keys[0], max(every.values()))
        for layer, count in sorted(every.items()):
            index = known.get(layer, str(layer).zfill(width))
            values = entries.setdefault(index, {})
            self._set(values, f"{self.prefix}{key}.{index}.", "num_key_value_heads", count)
        if not self.holder.get(key):
            self.holder[key] = entries

    def _single_layers(self) -> dict[str, dict[str, Any]]:
        key = self.architecture.attention.per_layer_key
        found = self.holder.get(key) if key else None
        return found if isinstance(found, dict) else {}

    def _write_head_dim(self) -> None:
        """A head_dim that only the class's default says is written out, for other readers."""
        text = self.reading.text
        if self.holder.get("head_dim") is None and not self.architecture.attention.fixed_head_dim:
            heads, hidden = text.optional("num_attention_heads"), text.optional("hidden_size")
            given = whole(text.defaults.get("head_dim"))
            if given is not None and heads and hidden and given != hidden // heads:
                self._set(self.holder, self.prefix, "head_dim", given, "it was the class's default")

    def _place(self, key: str) -> tuple[dict[str, Any], str, str]:
        """The object that holds the last word of `key`, the words in front of it, and that word."""
        holder, prefix = self.holder, self.prefix
        *outer, last = key.split(".")
        for name in outer:
            inner = holder.get(name)
            if not isinstance(inner, dict):
                raise no_place(self.where, f"{prefix}{name}")
            holder, prefix = inner, f"{prefix}{name}."
        return holder, prefix, self._own_name(holder, last)

    def _own_name(self, holder: Mapping[str, Any], name: str) -> str:
        """The spelling that stands in the file, else the class's own."""
        text = self.reading.text
        spellings = (text.attribute_map.get(name, name), name, *text.aliases.get(name, ()))
        return next((word for word in spellings if holder.get(word) is not None), spellings[0])

    def _now(self, key: str) -> Any:
        """The present value of `key`, of the file or the class; None for one that is not set."""
        view = self.reading.text
        *outer, last = key.split(".")
        for name in outer:
            view = view.child(name)
        return view.get(last)

    def _set(
        self, holder: dict[str, Any], prefix: str, key: str, value: object, why: str = ""
    ) -> None:
        old = holder.get(key)
        if old == value:
            return
        holder[key] = value
        note = f" ({why})" if why else ""
        self.changes.append(f"{prefix}{key}: {_shown(old)} -> {_shown(value)}{note}")


def _shown(value: object) -> str:
    if value is None:
        return "absent"
    return str(value).lower() if isinstance(value, bool) else str(value)


def language_model(new: dict[str, Any], where: str) -> tuple[dict[str, Any], str]:
    """The object that describes the language model, and the words in front of its keys."""
    holder, prefix = new, ""
    for name in _text_keys(new):
        inner = holder.get(name)
        if inner is None and "hidden_size" in holder:
            return holder, prefix
        if not isinstance(inner, dict):
            raise no_place(where, f"{prefix}{name}")
        holder, prefix = inner, f"{prefix}{name}."
    return holder, prefix


def _text_keys(config: Mapping[str, Any]) -> Iterator[str]:
    """The names of the nested configs from the outermost to the language model."""
    while True:
        model_type = str(config.get("model_type"))
        found = architecture_of(model_type)
        text = found.config.text if found else None
        if text is None:
            return
        yield text
        inner = config.get(text)
        if not isinstance(inner, dict):
            return
        config = inner
