"""What a home hands to the planner."""

from collections.abc import Mapping
from dataclasses import dataclass

from .plan import SideFile
from .steps import Dropped, Step


@dataclass(frozen=True, kw_only=True, slots=True)
class Heads:
    """The heads of every layer: query heads, and K/V heads before and after."""

    num_attention_heads: int
    before: int
    after: int
    head_dim: int

    @property
    def members(self) -> int:
        """How many K/V heads become one: [j*members, (j+1)*members) become head j."""
        return self.before // self.after


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """The steps of each file by its name, in the order of the source's bytes; `layers` are the
    numbers of the layers whose K/V heads they pool, `side_files` what the home lays beside them."""

    steps: Mapping[str, tuple[Step, ...]]
    layers: tuple[int, ...]
    dropped: tuple[Dropped, ...] = ()
    notes: tuple[str, ...] = ()
    side_files: tuple[SideFile, ...] = ()
