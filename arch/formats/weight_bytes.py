"""The bytes of a model's weights: its matrices, each in the format that a scheme gives it."""

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import NamedTuple

from ..modules.module import Inventory, Module
from .scheme import Scheme


class Stored(NamedTuple):
    """So many parameters in so many bytes. `name` is that of a format, None for plain floats."""

    name: str | None
    parameters: int
    nbytes: int

    def label(self, scheme: str) -> str | None:
        """What to call it in a model of that scheme."""
        if self.name is None or self.name.startswith(scheme):
            return self.name
        return f"{scheme}, {self.name}"

    @property
    def bits(self) -> Fraction:
        """Of a parameter, scales and the like included."""
        return Fraction(8 * self.nbytes, self.parameters)


class StoredWeights(NamedTuple):
    """`stored` is sorted by bytes. `prediction` are those of layers that predict further tokens,
    which are not among `stored`. `attention` is of the matrices of attention alone."""

    stored: tuple[Stored, ...]
    prediction: Stored | None
    attention: Stored | None
    embedding_bytes: int

    @property
    def parameters(self) -> int:
        """Without those that predict."""
        return sum(part.parameters for part in self.stored)

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.stored)


def stored_weights(inventory: Inventory, scheme: Scheme, *, wide_bits: int) -> StoredWeights:
    """`wide_bits` are those of what stays as it is, unless the scheme says otherwise."""
    inventory, wide_bits = scheme.stored(inventory), scheme.wide_bits or wide_bits
    cut = list(module_bytes(inventory, inventory.modules, scheme, wide_bits))
    cut_ahead = list(module_bytes(inventory, inventory.prediction, scheme, wide_bits))
    attention = [row for module, row in cut if module.kind == "attention"]
    embedding = sum(row.nbytes for module, row in cut if module.kind == "embedding")
    ahead = _sum(None, [row for _, row in cut_ahead], inventory.prediction_others, wide_bits)
    return StoredWeights(
        stored=tuple(_by_name([row for _, row in cut], inventory.others, wide_bits)),
        prediction=ahead if inventory.prediction else None,
        attention=_sum(None, attention, 0, wide_bits) if attention else None,
        embedding_bytes=embedding,
    )


def module_bytes(
    inventory: Inventory, modules: Iterable[Module], scheme: Scheme, wide_bits: int
) -> Iterator[tuple[Module, Stored]]:
    """Each of `modules`, which are among those of `inventory`, as `scheme` stores it."""
    for module in modules:
        form = scheme.choose(module, tuple(inventory.names(module)))
        if form is None:
            nbytes = module.parameters * wide_bits // 8
            yield module, Stored(None, module.parameters, nbytes)
        else:
            nbytes = module.copies * form.nbytes(module.rows, module.columns)
            yield module, Stored(form.name, module.parameters, nbytes)


def _by_name(rows: list[Stored], others: int, wide_bits: int) -> list[Stored]:
    names = dict.fromkeys([*(row.name for row in rows), None])
    sums = [
        _sum(name, [row for row in rows if row.name == name], 0 if name else others, wide_bits)
        for name in names
    ]
    return sorted((row for row in sums if row.parameters), key=lambda row: -row.nbytes)


def _sum(name: str | None, rows: list[Stored], others: int, wide_bits: int) -> Stored:
    return Stored(
        name,
        sum(row.parameters for row in rows) + others,
        sum(row.nbytes for row in rows) + others * wide_bits // 8,
    )
