"""What tells one architecture of GGUF files from another, for what llama.cpp caches of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from headcount.model.spec import Layer

from .keys import Keys

# A whole reading of its own: key-values -> layers and hidden size.
Towers = Callable[[Keys], tuple[tuple[Layer, ...], int]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Windows:
    """Every `period`-th layer sees everything, the last of each period or, with `full_first`, the
    first. `default`: the window where the file names none; `always`: the window whatever the file
    says, but 0. `depth`: only a model of so many layers has windows at all."""

    period: int
    full_first: bool = False
    default: int | None = None
    always: int | None = None
    depth: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Recurrence:
    """Recurrent layers and the `form` of their mixer. They are all layers, with attention
    `beside` it or without, those without K/V heads, or all but every `period`-th."""

    form: str
    layers: Literal["all", "beside", "without heads", "interval"]
    period: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Gguf:
    """One `general.architecture`.

    `windows` None: those that the file itself lists; `slides`: every layer that attends has the
    window of the file, or ("dropped") the loader reads the key and drops it. `cached`: llama.cpp
    makes a cache for it. `query_gate`: attn_q computes a gate for every element of q, too.
    `own_caches`: layers with a cache of their own, where the file does not tell. `indexed`: sparse
    attention with an indexer's keys beside the cache. `towers` reads what is no language model.
    """

    architecture: str
    windows: Windows | None = None
    slides: Literal["listed", "all", "dropped"] = "listed"
    recurrence: Recurrence | None = None
    cached: bool = True
    query_gate: bool = False
    own_caches: int | None = None
    indexed: bool = False
    towers: Towers | None = None
