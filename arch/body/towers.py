"""Models of several stacks: a language model that sees through a tower, and two towers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..attention.layers import build_layers
from ..attention.shape import AttentionShape
from ..class_defaults import class_defaults
from ..config_view import ConfigView
from .body import Body, Head, Layers, find_head, lm_head, no_head
from .uncounted import UncountedError

# The keys of towers that count layers and heads by other names.
DEPTH_KEYS = {"num_hidden_layers": "depth", "num_attention_heads": "num_heads"}

# (the wrapper's config, the tower's, the language model's) -> parameters
Projector = Callable[[ConfigView, ConfigView, ConfigView], int]

WRAPPER_CLASSES: Mapping[str, Head | None] = {"ForConditionalGeneration": lm_head, "Model": no_head}


@dataclass(frozen=True, kw_only=True, slots=True)
class Tower:
    """An encoder of images or sound: `attention` says how its layers attend, `body` the rest.

    Its config is of the type `model_type`, whose class defaults apply; `defaults` are those of a
    type that transformers has no class for. `names` maps standard names to the ones it uses.
    `whole` counts a tower whose layers no shape of attention describes.
    """

    model_type: str
    body: Body = field(default_factory=Body)
    attention: AttentionShape = field(default_factory=AttentionShape)
    whole: Callable[[ConfigView], int] | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def view(self, wrapper: ConfigView, key: str) -> ConfigView | None:
        """None where neither the file nor the wrapper's class gives the tower."""
        wrapper.opened.add(key)
        given = wrapper.config.get(key)
        default = wrapper.defaults.get(key)
        if not isinstance(given, dict) and (not isinstance(default, dict) or key in wrapper.config):
            return None
        known = class_defaults(self.model_type)
        values: dict[str, Any] = dict(known.defaults if known else self.defaults)
        values.update(given if isinstance(given, dict) else default or {})
        values.update({name: values[own] for name, own in self.names.items() if own in values})
        return ConfigView(
            values,
            where=f"{wrapper.where}: {key}",
            attribute_map=known.attribute_map if known else None,
        )

    def parameters(self, view: ConfigView) -> int:
        """All of it, attention included: an audit's layers are those of the language model."""
        if self.whole is not None:
            return self.whole(view)
        layers = build_layers(self.attention, view)
        return sum(layer.parameters().total for layer in layers) + self.body.trunk(view, layers)


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One tower of a wrapper, described by the nested config `key`, and what joins it to the
    language model. `towers` are the types that the class builds, the first of them by default;
    `fixed`: the class builds the first, whatever type the file names (MiniMax-M3's says CLIP).
    `copies` is how many of them it has."""

    towers: tuple[Tower, ...]
    projector: Projector
    key: str = "vision_config"
    copies: int = 1
    fixed: bool = False

    def parameters(self, view: ConfigView, text: ConfigView) -> int:
        """0 where the config has no such tower. Raises UncountedError for one of another type."""
        tower = self._tower(view)
        inner = tower.view(view, self.key)
        if inner is None:
            return 0
        return self.copies * tower.parameters(inner) + self.projector(view, inner, text)

    def _tower(self, view: ConfigView) -> Tower:
        if self.fixed:
            return self.towers[0]
        for holder in (view.config, view.defaults):
            nested = holder.get(self.key)
            kind = nested.get("model_type") if isinstance(nested, dict) else None
            if kind and kind != view.model_type:
                for tower in self.towers:
                    if tower.model_type == kind:
                        return tower
                raise UncountedError(f"its {self.key} is of the type {kind!r}, not counted here")
        return self.towers[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class Wrapper:
    """A language model with towers. `more` counts what belongs to no tower, `classes` maps the
    ending of a class's name to its head."""

    parts: tuple[Part, ...]
    more: Callable[[ConfigView, ConfigView], int] = lambda view, text: 0
    classes: Mapping[str, Head | None] = field(default_factory=lambda: WRAPPER_CLASSES)

    def parameters(
        self, view: ConfigView, text: ConfigView, body: Body, layers: Layers, *, tied: bool
    ) -> int:
        """All but the attention of the language model, whose shape is `body`.

        Raises UncountedError for a class that is not described."""
        head = find_head(self.classes, view, next(iter(self.classes)))
        language = body.trunk(text, layers) + head(body, text, tied) + self.more(view, text)
        return language + sum(part.parameters(view, text) for part in self.parts)


def one_tower(*towers: Tower, projector: Projector, key: str = "vision_config") -> Wrapper:
    """A language model with one tower, of any of the types of `towers`."""
    return Wrapper(parts=(Part(towers=towers, projector=projector, key=key),))


def fixed_tower(tower: Tower, *, projector: Projector) -> Wrapper:
    """A language model with one image tower, of its own class whatever the config names."""
    return Wrapper(parts=(Part(towers=(tower,), projector=projector, fixed=True),))


@dataclass(frozen=True, kw_only=True, slots=True)
class TwoTowers:
    """CLIP: two stacks that are audited both, each projected to one space of the width that the key
    `projection` gives, and as many single numbers as `constants`: a temperature. `key` names their
    nested configs, and `widths` the keys of what a stack gives where that is not its hidden size; a
    head, as T5Gemma has one, stands on the last stack."""

    bodies: Mapping[str, Body]
    classes: Mapping[str, Head | None]
    constants: int = 1
    projection: str | None = "projection_dim"
    key: str = "{stack}_config"
    widths: Mapping[str, str] = field(default_factory=dict)

    def parameters(self, view: ConfigView, layers: Layers, *, tied: bool) -> int:
        head = find_head(self.classes, view, next(iter(self.classes)))
        last, body = list(self.bodies.items())[-1]
        heads = head(body, view.child(self.key.format(stack=last)), tied)
        stacks = (self._stack(view, layers, name, body) for name, body in self.bodies.items())
        return self.constants + heads + sum(stacks)

    def idle(self, view: ConfigView, layers: Layers) -> int:
        return 0

    def _stack(self, view: ConfigView, layers: Layers, name: str, body: Body) -> int:
        nested = view.child(self.key.format(stack=name))
        own = tuple(layer for layer in layers if layer.stack == name)
        out = view.integer(self.projection) if self.projection else 0
        return body.trunk(nested, own) + nested.integer(self.widths.get(name, "hidden_size")) * out
