"""Models of several stacks: a language model that sees through a tower, and two towers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .body import Body, Head, Layers, find_head, lm_head, no_head
from .class_defaults import class_defaults
from .row import Family
from .view import ConfigView

# (the wrapper's config, the tower's, the language model's) -> parameters
Projector = Callable[[ConfigView, ConfigView, ConfigView], int]

WRAPPER_CLASSES: Mapping[str, Head | None] = {
    "ForConditionalGeneration": lm_head,
    "Model": no_head,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Tower:
    """An encoder of images: `family` says its attention, `body` the rest.

    Its config is the nested object `key`, of the type `model_type`, whose class defaults apply.
    `names` maps standard names to the ones it uses.
    """

    body: Body
    family: Family
    model_type: str
    names: Mapping[str, str] = field(default_factory=dict)
    key: str = "vision_config"

    def view(self, wrapper: ConfigView) -> ConfigView | None:
        """None where neither the file nor the wrapper's class gives the tower."""
        given = wrapper.config.get(self.key)
        default = wrapper.defaults.get(self.key)
        if not isinstance(given, dict) and not isinstance(default, dict):
            return None
        known = class_defaults(self.model_type)
        values: dict[str, Any] = dict(known.defaults) if known else {}
        values.update(given if isinstance(given, dict) else default or {})
        values.update({name: values.get(own) for name, own in self.names.items()})
        return ConfigView(values, where=f"{wrapper.where}: {self.key}")

    def parameters(self, view: ConfigView) -> int:
        """All of it, attention included: an audit's layers are those of the language model."""
        layers = self.family.build(self.family, view)
        attention = sum(layer.parameters().total for layer in layers)
        return attention + self.body.trunk(view, layers)


@dataclass(frozen=True, kw_only=True, slots=True)
class Wrapper:
    """A language model with a tower. `unless` are keys of parts that are not counted here."""

    tower: Tower
    projector: Projector
    unless: tuple[str, ...] = ()

    def parameters(
        self, view: ConfigView, text: ConfigView, body: Body, layers: Layers, *, tied: bool
    ) -> int | None:
        """All but the attention of the language model, whose shape is `body`."""
        head = find_head(WRAPPER_CLASSES, view, "ForConditionalGeneration")
        if head is None or not self._is_known(view):
            return None
        language = body.trunk(text, layers) + head(body, text, tied)
        tower = self.tower.view(view)
        if tower is None:
            return language
        return language + self.tower.parameters(tower) + self.projector(view, tower, text)

    def _is_known(self, view: ConfigView) -> bool:
        """No part that is not counted, and no tower of another kind."""
        if any(view.config.get(key) is not None for key in self.unless):
            return False
        given = view.config.get(self.tower.key)
        kind = given.get("model_type") if isinstance(given, dict) else None
        return kind in (None, self.tower.model_type, view.get("model_type"))


@dataclass(frozen=True, kw_only=True, slots=True)
class TwoTowers:
    """CLIP: two stacks that are audited both, each projected to one space, and a temperature."""

    bodies: Mapping[str, Body]
    classes: Mapping[str, Head | None]

    def parameters(self, view: ConfigView, layers: Layers) -> int | None:
        if find_head(self.classes, view, next(iter(self.classes))) is None:
            return None
        return 1 + sum(self._stack(view, layers, name, body) for name, body in self.bodies.items())

    def idle(self, view: ConfigView, layers: Layers) -> int:
        return 0

    def _stack(self, view: ConfigView, layers: Layers, name: str, body: Body) -> int:
        nested = view.child(f"{name}_config")
        own = tuple(layer for layer in layers if layer.stack == name)
        projection = nested.integer("hidden_size") * view.integer("projection_dim")
        return body.trunk(nested, own) + projection
