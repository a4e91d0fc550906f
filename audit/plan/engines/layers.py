"""The cache of each layer on one rank, as an engine with pages of K/V memory sees it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ...dtypes import bytes_of
from ...mixers import CrossAttention, LatentAttention, Mixer, Recurrent
from ...spec import ModelSpec
from ..parallel import rank_mixer

Kind = Literal["full", "sliding", "chunked", "latent", "cross", "state"]


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerCache:
    """One layer's cache: `token_bytes` for each token that it keeps, or `state_bytes` in all.

    `window` is the number of tokens that a query of a sliding or chunked layer can see.
    """

    kind: Kind
    token_bytes: int = 0
    state_bytes: int = 0
    window: int | None = None
