"""Config values that single layers have to themselves."""

from collections.abc import Mapping
from typing import Any

from headcount.model.errors import InvalidConfigError
from headcount.model.numbers import digits

from ..config_view import ConfigView

Values = list[Mapping[str, Any]]


def listed_values(view: ConfigView, count: int) -> Values | None:
    """`per_layer_config`: {layer: {key: value}}, None where the file has none. transformers pads
    the numbers of layers: "05" where there are ten or more."""
    given = view.get("per_layer_config")
    if given is None:
        return None
    if not isinstance(given, dict) or not all(isinstance(v, dict) for v in given.values()):
        raise InvalidConfigError(f"{view.where}: per_layer_config must hold an object per layer")
    by_index = {digits(key): value for key, value in given.items()}
    return [by_index.get(i, {}) for i in range(count)]


def for_each_layer(view: ConfigView, name: str, count: int) -> tuple[int, ...] | None:
    """The list `name` with one number for each of `count` layers, None where the file has none."""
    given = view.integers(name)
    if given is not None and (len(given) != count or min(given, default=1) < 1):
        raise InvalidConfigError(
            f"{view.where}: {name} must list a positive number for each of {count} layers"
        )
    return given
