"""How a checkpoint as a whole is stored: which format each matrix has."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from headcount.model.errors import UnsupportedModelError

from ..modules.module import Inventory, Module
from .format import Format

# (a matrix, what it may be called) -> its format; None: it stays as it is.
Choice = Callable[[Module, tuple[str, ...]], Format | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Scheme:
    """`wide_bits` are those of norms and biases, and of matrices that stay, where these are not
    those of the model's dtype. `as_built`: files hold what the library had built of the model when
    it wrote them, without the layers that predict further tokens."""

    name: str
    choose: Choice
    wide_bits: int | None = None
    as_built: bool = False

    def stored(self, inventory: Inventory) -> Inventory:
        """What of `inventory` files hold."""
        if not self.as_built:
            return inventory
        return replace(inventory, prediction=(), prediction_others=0)


class UnknownFormatError(UnsupportedModelError):
    """The bytes of the weights do not follow from a config's quantisation."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(
            f"config.json: {what}, so the bytes of its weights do not follow from the config: plan"
            " a folder that holds them, or say as what with --dtype"
        )
