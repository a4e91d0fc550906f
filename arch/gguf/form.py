"""What tells one architecture of GGUF files from another, for what llama.cpp caches of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from headcount.model.spec import Layer

from .keys import Keys

# A reading of what is no plain language model: key-values -> layers and hidden size.
Towers = Callable[[Keys], tuple[tuple[Layer, ...], int]]
# How often each layer runs for one token, by the layers of the file.
Passes = Callable[[Keys, int], list[int]]
# Which layers have an indexer of their own, by their number.
Owners = Callable[[Keys, int], list[bool]]


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
    """Which layers are recurrent: all, those without K/V heads, those without K/V heads and MLP, or
    all but every `period`-th, unless attention.recurrent_layers lists them. `form` is their mixer;
    `beside`: they attend, too."""

    form: str
    layers: Literal["all", "without heads", "without heads or MLP", "interval"]
    beside: bool = False
    period: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Indexer:
    """Sparse attention: an indexer keeps keys beside the cache. `keeps_values`: its cache of one
    key head has values, too. `owners` says which layers have one where the file does not list them;
    None: all."""

    owners: Owners | None = None
    keeps_values: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Gguf:
    """One `general.architecture`. The defaults are those of an architecture nobody describes.

    `windows` None: those that the file itself lists; `slides`: every layer that attends has the
    window of the file, or ("dropped") the loader reads the key and drops it. `cached`: llama.cpp
    makes a cache for it (create_memory in src/llama-model.cpp). `query_gate`: attn_q computes a
    gate for every element of q, too (load_arch_tensors). `caching_layers`: so many layers have a
    cache of their own where the file does not tell. `passes` None: `num_loops` of the file, or
    one. `reads` is a whole reading of its own. `drafts`: q, k and v of the first layer read an
    embedding beside a hidden state, and the head may be over fewer tokens. `named`: its tensors
    have llama.cpp's names. `note` is what an audit of such a file says.
    """

    architecture: str
    windows: Windows | None = None
    slides: Literal["listed", "all", "dropped"] = "listed"
    recurrence: Recurrence | None = None
    cached: bool = True
    query_gate: bool = False
    caching_layers: int | None = None
    indexer: Indexer | None = None
    passes: Passes | None = None
    reads: Towers | None = None
    drafts: bool = False
    named: bool = True
    note: str | None = None
