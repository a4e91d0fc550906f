"""Layers that predict further tokens: in files, and not in the model that transformers builds."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..read_config import Reading
from .module import Inventory, Module
from .names import Prediction

_BUILT_KEY = "num_nextn_predict_layers"  # of MiMo, the one type whose class builds them


def prediction_layers(inventory: Inventory, reading: Reading) -> Inventory:
    """`inventory` with the layers that the config counts beyond the model's own.

    Each is a layer of attention and what follows it, as the model's last ones are."""
    text, rule, count = reading.text, reading.architecture.prediction, predicted(reading)
    if rule is None or not count:
        return inventory
    number = len(reading.spec.layers)
    name = rule.name.replace("#", str(number))
    hidden = text.integer("hidden_size")
    one = tuple(_layer(inventory.modules, name, number, rule, hidden))
    return replace(inventory, prediction=one * count, prediction_others=count * 5 * hidden)


def predicted(reading: Reading) -> int:
    """How many layers that predict further tokens the config gives."""
    rule = reading.architecture.prediction
    if rule is None:
        return 0
    named = reading.text.optional(rule.key, minimum=0)
    return rule.otherwise if named is None else named


def built_prediction(reading: Reading) -> int:
    """Parameters of the layers that predict further tokens among those of the model, as its class
    builds it."""
    count = reading.architecture.built_prediction
    return count(reading.text, reading.spec.layers) if count else 0


def without_built_prediction(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config of the model alone."""
    return {**config, _BUILT_KEY: 0}


def _layer(
    modules: tuple[Module, ...], name: str, number: int, rule: Prediction, hidden: int
) -> Iterator[Module]:
    for kinds in (("attention",), ("mlp", "experts", "shared experts", "router")):
        for module in _last(modules, kinds):
            inside = module.name.split(".", 2)[2]
            yield module._replace(name=f"{name}.{inside}", layer=number)
    yield Module(f"{name}.eh_proj", "other", "join", hidden, rule.joins * hidden, 1, number)
    if rule.copies:
        for module in modules:
            if module.kind in ("embedding", "head"):
                yield module._replace(name=f"{name}.{module.name}", kind="embedding")


def _last(modules: Iterable[Module], kinds: tuple[str, ...]) -> list[Module]:
    """Those of the last layer that has any of `kinds`."""
    found = [module for module in modules if module.kind in kinds and module.layer is not None]
    last = max((module.layer or 0 for module in found), default=None)
    return [module for module in found if module.layer == last]
