"""Attention whose keys and values are rebuilt from one latent of each token, which is all it keeps.

With the latent c = A x of what k and v read, k = U_k c and v = U_v c: for E inputs and rank r, A is
[r, E], U_k [KV*d, r] and U_v [KV*dv, r]. Unlike in multi-head latent attention (`latent.py`), every
key is rotated after it was rebuilt, so that no part of it is kept beside the latent.
"""

from dataclasses import dataclass
from typing import ClassVar

from .attention import Attention
from .state import Keeper, Parts, tokens_kept

# What the way down to the latent is called among the parts of a mixer: it counts as k.
DOWN = "k_a"


@dataclass(frozen=True, kw_only=True, slots=True)
class LowRankAttention(Attention):
    """The attention of its fields, of which `latent_rank` elements a token are kept, in place of
    the keys and values of all K/V heads."""

    kind: ClassVar[str] = "low_rank_attention"

    latent_rank: int

    def out_features(self, part: str) -> int:
        if part == DOWN:
            return self.latent_rank
        return Attention.out_features(self, part)

    def in_features(self, part: str) -> int:
        if part in ("k", "v"):
            return self.latent_rank
        return Attention.in_features(self, "k" if part == DOWN else part)

    def parameters(self) -> Parts:
        own = Attention.parameters(self)
        return own._replace(k=own.k + self.latent_rank * self.in_features(DOWN))

    def key_value_elements(
        self, tokens: int, encoder_tokens: int = 0, engine: Keeper = "transformers"
    ) -> int:
        """Elements of the latents kept after `tokens` tokens."""
        if not self.cached:
            return 0
        return tokens_kept(tokens, self.window, engine) * self.latent_rank
