"""What a home tells the planner."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..attention_map.attention_tensors import Where
from ..latent.mla_shape import MlaShape
from ..plan.heads import HeadsByLayer
from ..plan.side_files import SideFile
from ..plan.steps import Dropped, Step


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """The steps of each file by its name, in the order of the source's bytes; `layers` are the
    numbers of the layers whose K/V heads they pool, `side_files` what the home lays beside them."""

    steps: Mapping[str, tuple[Step, ...]]
    layers: tuple[int, ...]
    dropped: tuple[Dropped, ...] = ()
    notes: tuple[str, ...] = ()
    side_files: tuple[SideFile, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Home:
    """A class that can hold `heads`, and why. `draft` makes the steps of the tensors, `config` the
    new config and what changed in it; both raise CannotConvertError for what is not known. `ranks`
    are the elements that are kept of a token in place of the heads, none: heads are kept; with
    `mla` by a class with latent attention, some of them a key that rotates."""

    name: str
    reason: str
    heads: HeadsByLayer
    draft: Callable[[], Draft]
    config: Callable[[], tuple[dict[str, Any], tuple[str, ...]]]
    ranks: Mapping[Where, int] = field(default_factory=dict)
    mla: MlaShape | None = None
