"""What a class with multi-head latent attention (MLA) makes of the latents of a conversion."""

from dataclasses import dataclass

# What the norms of latents in transformers' class add, whatever the config says.
NORM_EPSILON = 1e-6


@dataclass(frozen=True, kw_only=True, slots=True)
class MlaShape:
    """`rank` and `rotated` are kv_lora_rank and qk_rope_head_dim, `head_dim` is qk_nope_head_dim.
    `scaling` is the factor of the source's scores, and `theta` the base of its rotation."""

    rank: int
    rotated: int
    head_dim: int
    scaling: float
    theta: float

    @property
    def query_scale(self) -> float:
        """Of the queries: the class divides scores by the root of all their rows."""
        return float(self.scaling * (self.head_dim + self.rotated) ** 0.5)

    @property
    def frequencies(self) -> list[float]:
        """Radians a token of each pair of rows that rotates."""
        return [self.theta ** (-2 * i / self.rotated) for i in range(self.rotated // 2)]
