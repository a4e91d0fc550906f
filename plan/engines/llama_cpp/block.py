"""What is computed in one layer, in elements of a token."""

from dataclasses import dataclass
from typing import NamedTuple


class Latent(NamedTuple):
    """Elements of MLA: of the query's latent (0: none), of what is rotated and what is not in a
    head, and of the latent that keys and values are."""

    query: int
    rotated: int
    plain: int
    rank: int
    values: int


class Experts(NamedTuple):
    """`held` of them of `width`, of which a token visits `used`."""

    held: int
    used: int
    width: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """Elements of a token in one layer: `query`, `key` and `value` of attention with `heads` (0:
    none) and `window`, and `read` by its output; `width` of the MLP (0: none), `shared` of that
    beside the experts; `recurrent` all that a recurrent mixer computes. `stored_once`: gate and up
    are one matrix; `cached`: it attends to a cache, else to the micro-batch itself; `indexed`: to
    tokens that an indexer chooses; `one_norm`: attention and MLP read the same, side by side.
    """

    heads: int = 0
    query: int = 0
    key: int = 0
    value: int = 0
    window: int | None = None
    latent: Latent | None = None
    width: int = 0
    gated: bool = True
    stored_once: bool = False
    experts: Experts | None = None
    shared: int = 0
    recurrent: int = 0
    read: int = 0
    cached: bool = True
    indexed: bool = False
    one_norm: bool = False

    @property
    def is_followed(self) -> bool:
        """Whether each of its tensors is known."""
        return not self.recurrent and not self.indexed and bool(self.heads)
