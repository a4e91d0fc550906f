"""A config read by standard names: aliases, class defaults, types and bounds in one place."""

from collections.abc import Mapping
from typing import Any

from headcount.model import limits
from headcount.model.errors import InvalidConfigError, short
from headcount.model.numbers import finite, whole
from headcount.model.spec import Origin


def positive(
    value: object, where: str, name: str, minimum: float = 0, maximum: float = 10**6
) -> float:
    """`value` as a number above `minimum`. Raises InvalidConfigError for anything else."""
    number = finite(value)
    if number is None or not minimum < number <= maximum:
        raise InvalidConfigError(
            f"{where}: {name} is {short(value)}; a number above {minimum:g} and at most"
            f" {maximum:,} is expected"
        )
    return number


Names = Mapping[str, tuple[str, ...]]


def joined(first: Names, then: Names) -> Names:
    """Other names of the same keys, those of `first` in front."""
    return {name: (*first.get(name, ()), *then.get(name, ())) for name in {**then, **first}}


class MissingValueError(InvalidConfigError):
    """A key that is needed is not there, and its class has no default for it."""


class ConfigView:
    """One (possibly nested) config object.

    `get(name)` looks in the file under the standard names for the field, under the class's own and
    under the architecture's aliases. A file with both means the standard one, which transformers
    sets last, but for names that are `overriding`, by which the class sets it anew. A key that is
    not there takes its class's default; one that is null is None, as for transformers (Mistral's
    window of 4,096 is switched off by a null). Every value that was asked
    for is recorded in `origins`.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        where: str,
        class_name: str = "",
        defaults: Mapping[str, Any] | None = None,
        attribute_map: Mapping[str, str] | None = None,
        aliases: Mapping[str, tuple[str, ...]] | None = None,
        overriding: Mapping[str, tuple[str, ...]] | None = None,
        origins: dict[str, Origin] | None = None,
        model_type: str = "",
    ) -> None:
        self.config = config
        self.where = where
        self.class_name = class_name
        self.defaults = defaults or {}
        self.attribute_map = attribute_map or {}
        self.overriding = overriding or {}
        self.aliases = joined(self.overriding, aliases or {})
        self.origins: dict[str, Origin] = {} if origins is None else origins
        self.model_type = model_type
        self.unused: tuple[str, ...] = ()  # keys of its files that its class does not have
        self.filled: Mapping[str, str] = {}  # the class that a default is of, if not class_name
        self.part = ""  # the nested object that this is, where others beside it are read, too
        self.overrides = ""  # what `overridden` changed
        # Where the value of a key stands if the file has other keys: a place and its key there, or
        # what it is derived from and "".
        self.told: Mapping[str, tuple[str, str]] = {}
        self.replaced: frozenset[str] = frozenset()  # the keys of it, which stand in no file
        self.opened: set[str] = set()  # nested objects that were read

    def get(self, name: str) -> Any:
        """The value of `name`, or None where neither the file nor the class says anything."""
        own = self.attribute_map.get(name, name)
        standard = (word for word, key in self.attribute_map.items() if key == own)
        if own in self.replaced:
            return self.config[own]
        first, last = self.overriding.get(name, ()), self.aliases.get(name, ())
        known = tuple(dict.fromkeys((*first, *standard, own, name, *last)))
        keys = [k for k in known if k in self.config]
        for key in keys:
            value = self.config[key]
            if value is not None:
                where, own = self.told.get(key, (self.where, key))
                return self.note(name, value, where if own in ("", name) else f"{where} ({own})")
        if keys:
            return self.note(name, None, f"{self.where} (null)")
        default = next((k for k in known if self.defaults.get(k) is not None), None)
        if default is None:
            return None
        source = f"class default of {self.filled.get(default, self.class_name)}"
        return self.note(name, self.defaults[default], source)

    def declared(self, name: str) -> Any:
        """The value of the class's own key `name` alone: what a class sees while it derives other
        values, before transformers sets the standard names."""
        return self.config.get(name, self.defaults.get(name))

    def note(self, name: str, value: Any, source: str) -> Any:
        """Records where `value` came from, for `--explain`, and returns it. What is derived of one
        of several nested objects says of which."""
        of = f" of {self.part}" if self.part and source.startswith("derived") else ""
        self.origins[name] = Origin(value=value, source=source + of)
        return value

    def unsaid(self, name: str) -> str:
        """What to say of a size behind its number: nothing if the file has it, else that it is the
        class's default, and which key of the file may have been meant for it."""
        origin = self.origins.get(name)
        if origin is None or not origin.source.startswith("class default"):
            return ""
        from difflib import get_close_matches  # slow to import, and only errors want it

        unknown = [key for key in self.config if key not in self.defaults]
        near = get_close_matches(name, unknown, n=1, cutoff=0.7)
        meant = f", which does not read {near[0]}: is that meant?" if near else ""
        return f" ({origin.source}{meant})"

    def optional(
        self, name: str, *, minimum: int = 1, maximum: int = limits.SIZE.most
    ) -> int | None:
        """An integer, or None if absent. Raises InvalidConfigError for any other type or range."""
        given = self.get(name)
        if given is None:
            return None
        value = whole(given)
        if value is None:
            raise InvalidConfigError(
                f"{self.where}: {name} is {short(given)}; an integer is expected"
            )
        if name.endswith("_heads"):
            maximum = min(maximum, limits.HEADS.most)
        if not minimum <= value <= maximum:
            raise InvalidConfigError(
                f"{self.where}: {name} is {short(value)}; it must be from {minimum} to {maximum:,}"
            )
        return value

    def integer(self, name: str, *, minimum: int = 1, maximum: int = limits.SIZE.most) -> int:
        """An integer that must be there. Raises InvalidConfigError."""
        value = self.optional(name, minimum=minimum, maximum=maximum)
        if value is None:
            origin = self.origins.get(name)
            null = origin is not None and origin.source.endswith("(null)")
            why = ": null stands there" if null else ", and its class has no default"
            raise MissingValueError(f"{self.where}: {name} is missing{why}")
        return value

    def integers(
        self, name: str, *, count: int | None = None, minimum: int = 0
    ) -> tuple[int, ...] | None:
        """A list of integers, `count` of them where that is given, or None if absent. Raises
        InvalidConfigError."""
        value = self.get(name)
        if value is None:
            return None
        if isinstance(value, list):
            self._check_length(name, value)
        found = [whole(item) for item in value] if isinstance(value, list) else [None]
        numbers = tuple(item for item in found if item is not None)
        if len(numbers) != len(found) or count not in (None, len(found)):
            many = "" if count is None else f"{count} "
            raise InvalidConfigError(f"{self.where}: {name} must be a list of {many}integers")
        wrong = next((item for item in numbers if not minimum <= item <= limits.SIZE.most), None)
        if wrong is not None:
            raise InvalidConfigError(
                f"{self.where}: {name} holds {short(wrong)}; each must be from {minimum} to"
                f" {limits.SIZE.most:,}"
            )
        return numbers

    def positive(self, name: str, *, minimum: float = 0, maximum: float = 10**6) -> float | None:
        """A number above `minimum` that need not be whole, or None if absent. Raises
        InvalidConfigError for any other type or range."""
        value = self.get(name)
        return None if value is None else positive(value, self.where, name, minimum, maximum)

    def strings(self, name: str) -> tuple[str, ...] | None:
        """A list of strings, or None if absent. Raises InvalidConfigError."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise InvalidConfigError(f"{self.where}: {name} must be a list of strings")
        self._check_length(name, value)
        return tuple(value)

    def _check_length(self, name: str, value: list[Any]) -> None:
        if len(value) > limits.LIST_ITEMS.most:
            where = f"{self.where}: {name}"
            raise InvalidConfigError(limits.LIST_ITEMS.refusal(where, len(value)))

    def flag(self, name: str | bool, *, absent: bool = False) -> bool:
        """A boolean by its key, `absent` without it. A bool, a constant of an architecture, is
        returned as it is; `!no_bias` is the opposite of `no_bias`."""
        if isinstance(name, bool):
            return name
        if name.startswith("!"):
            return not self.flag(name[1:])
        value = self.get(name)
        if value is None:
            return absent
        if not isinstance(value, bool):
            raise InvalidConfigError(
                f"{self.where}: {name} is {short(value)}; true or false is expected"
            )
        return value

    def overridden(self, values: Mapping[str, Any], *, derived: str = "") -> "ConfigView":
        """The same view of a file in which `values` stand instead, by their standard names.

        What is recorded of them is what the file says; of one that it does not have, what it is
        `derived` from, or nothing."""
        if not values:
            return self
        for name, value in values.items():
            if self.get(name) is None and derived:
                self.note(name, value, f"derived: {derived}")
        spoken = {self.attribute_map.get(name, name): value for name, value in values.items()}
        said = {k: v for k, v in self.config.items() if self.attribute_map.get(k, k) not in spoken}
        changed = ConfigView(
            {**said, **spoken},
            where=self.where,
            class_name=self.class_name,
            defaults=self.defaults,
            attribute_map=self.attribute_map,
            aliases=self.aliases,
            overriding=self.overriding,
            origins=self.origins,
            model_type=self.model_type,
        )
        changed.opened, changed.filled, changed.told = self.opened, self.filled, self.told
        changed.part = self.part
        changed.overrides = repr(sorted(values.items()))
        changed.replaced = self.replaced | spoken.keys()
        return changed

    def child(self, name: str) -> "ConfigView":
        """The nested object `name`, read with the same rules and the wrapper's nested defaults."""
        value, default = self.config.get(name), self.defaults.get(name)
        self.opened.add(name)
        where = ": ".join(self.told.get(name, (self.where, name)))
        if value is not None and not isinstance(value, dict):
            raise InvalidConfigError(f"{where} must be an object, not {short(value)}")
        made = ConfigView(
            value or {},
            where=where,
            class_name=f"{self.class_name}: {name}",
            defaults=default if isinstance(default, dict) else {},
            origins=self.origins,
        )
        made.part = f"{self.part}.{name}" if self.part else name
        return made
