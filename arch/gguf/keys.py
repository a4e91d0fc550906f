"""The key-values of one architecture, checked when they are asked for."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from headcount.model import limits
from headcount.model.errors import InvalidConfigError
from headcount.model.spec import Origin


@dataclass(frozen=True, slots=True)
class Keys:
    """`architecture` is the first word of every key: `llama`, or `clip.vision` for a tower."""

    metadata: Mapping[str, Any]
    architecture: str
    where: str

    def get(self, name: str) -> Any:
        return self.metadata.get(f"{self.architecture}.{name}")

    def integer(
        self, name: str, default: int | None = None, limit: int = limits.GGUF_SIZE.most
    ) -> int | None:
        """A whole number in [0, limit]; a list of equal ones counts as one."""
        value = self.get(name)
        if value is None:
            return default
        if isinstance(value, tuple) and len(set(value)) == 1:
            value = value[0]
        return self._checked(name, value, limit)

    def number(self, name: str) -> int:
        """A whole number, 0 where it is absent."""
        return self.integer(name) or 0

    def need(self, name: str, limit: int = limits.GGUF_SIZE.most) -> int:
        value = self.integer(name, None, limit)
        if not value:
            raise InvalidConfigError(f"{self.where}: no {self.architecture}.{name}")
        return value

    def per_layer(self, name: str, layers: int, default: int | None) -> list[int | None]:
        """One number per layer, from a number or a list of them."""
        value = self.get(name)
        if not isinstance(value, tuple):
            return [self.integer(name, default)] * layers
        if len(value) < layers:
            raise InvalidConfigError(
                f"{self.where}: {self.architecture}.{name} has {len(value)} values for"
                f" {layers} layers"
            )
        return [self._checked(name, item, limits.GGUF_SIZE.most) for item in value[:layers]]

    def flags(self, name: str, layers: int) -> list[bool] | None:
        """One yes or no per layer, from a list; None where the key is absent or is no list."""
        if not isinstance(self.get(name), tuple):
            return None
        return [bool(value) for value in self.per_layer(name, layers, None)]

    def origins(self) -> dict[str, Origin]:
        """For `--explain`: every short value of the architecture's keys."""
        prefix = self.architecture + "."
        return {
            name.removeprefix(prefix): Origin(value=value, source=self.where)
            for name, value in self.metadata.items()
            if name.startswith(prefix) and _is_plain(value)
        }

    def _checked(self, name: str, value: Any, limit: int) -> int:
        if type(value) not in (int, bool) or not 0 <= value <= limit:
            raise InvalidConfigError(
                f"{self.where}: {self.architecture}.{name} {value!r} is not a number"
                f" up to {limit:,}"
            )
        return int(value)


def _is_plain(value: Any) -> bool:
    """Whether JSON can say it: not for NaN, nor for what was too long to keep."""
    if isinstance(value, tuple):
        return all(_is_plain(item) for item in value)
    return isinstance(value, int | str) or (isinstance(value, float) and isfinite(value))
