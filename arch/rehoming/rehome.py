"""The type of a pair of classes: everything that turns one's checkpoint into the other's."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..class_defaults import class_defaults


class OldConfig:
    """The source's config: a value by its own key, its standard name, or the class's default."""

    def __init__(
        self, values: Mapping[str, Any], model_type: str, defaults: Mapping[str, Any]
    ) -> None:
        known = class_defaults(model_type)
        assert known is not None
        self.values = values
        self.names = known.attribute_map
        self.defaults = {**known.defaults, **defaults}

    def __getitem__(self, key: str) -> Any:
        for name in (key, self.names.get(key, key)):
            if self.values.get(name) is not None:
                return self.values[name]
        return self.defaults.get(self.names.get(key, key), self.defaults.get(key))


@dataclass(frozen=True, kw_only=True, slots=True)
class Rehome:
    """One pair of classes. All names are of modules or tensors in a layer, unless said otherwise.

    `takes` maps each module of the target that holds heads of q, k or v to the parts that it gets,
    wherever these lie in the source; `turned` is the order of the rows of q and k heads of
    a head_dim, for another rotary layout. `kept` maps other modules to their new names,
    `transposed` names those of them that are stored the other way round, and `folds` the modules
    that take up a norm: those norms are left out. `made` are tensors that the target has and the
    source may lack, with their only value; their length is that of the projection's rows, or of the
    module's output. `outside` maps tensors outside all layers, `made_outside` is `made` for them
    (each with the tensor whose rows say the length), `skipped` says how many rows of one are left
    out. `dropped` are buffers, no parameters. `classes` maps architectures; `only` is the one count
    of K/V heads that the target can hold. `fits` says why a config has no exact counterpart (None:
    it has one), `config` makes keys of the new one from the old, the query heads and the head_dim,
    with `defaults` for keys that the source's class has and no file need give, and `gone` are the
    keys that mean nothing to the target. `notes` are said where their key is set.
    """

    target: str
    reason: str
    new_layer: str
    takes: Mapping[str, str]
    kept: Mapping[str, str]
    outside: Mapping[str, str]
    classes: Mapping[str, str]
    config: Callable[[OldConfig, int, int], Mapping[str, Any]]
    fits: Callable[[OldConfig], str | None]
    turned: Callable[[OldConfig, int], tuple[int, ...]] | None = None
    transposed: frozenset[str] = frozenset()
    folds: Mapping[str, str] = field(default_factory=dict)
    made: Mapping[str, float] = field(default_factory=dict)
    made_outside: Mapping[str, tuple[float, str]] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    dropped: frozenset[str] = frozenset()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()
    only: int | None = None
    notes: Mapping[str, str] = field(default_factory=dict)
