"""One matrix of a model, as quantisers know it: its name, what it is for, and its shape."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

Kind = Literal[
    "embedding",
    "head",
    "attention",
    "recurrent",
    "mlp",
    "experts",
    "shared experts",
    "router",
    "tower",
    "other",
]
# Kinds that are `nn.Linear` modules: routers are parameters of their own, embeddings tables, and
# `other` are matrices that every quantiser leaves alone.
LINEAR = frozenset({"head", "attention", "recurrent", "mlp", "experts", "shared experts", "tower"})
# Those of them that stand in the decoder's layers.
IN_LAYERS = LINEAR - {"head", "tower"}


class Module(NamedTuple):
    """`copies` matrices of [rows, columns] = [out, in] that are alike, such as the experts of a
    layer, of which `name` is the first. `part` is q, k, v, qkv, o, gate, up, down or another word;
    `layer` the number of its layer, None outside. `name` is without what stands in front of
    `layers.`."""

    name: str
    kind: Kind
    part: str
    rows: int
    columns: int
    copies: int = 1
    layer: int | None = None

    @property
    def parameters(self) -> int:
        return self.copies * self.rows * self.columns


@dataclass(frozen=True, kw_only=True, slots=True)
class Inventory:
    """All matrices of a model, and its other parameters: norms, biases, convolutions, and what no
    shape is known of. `prediction` are those of layers that predict further tokens, which files
    hold and the model's class does not build. `prefixes` may stand in front of a name."""

    modules: tuple[Module, ...]
    others: int
    prediction: tuple[Module, ...] = ()
    prediction_others: int = 0
    prefixes: tuple[str, ...] = ("model.", "")

    @property
    def parameters(self) -> int:
        """Without those that predict."""
        return sum(module.parameters for module in self.modules) + self.others

    def names(self, module: Module) -> Iterator[str]:
        """What files and lists of exceptions may call it."""
        return (prefix + module.name for prefix in self.prefixes)
