"""Which rungs of the ladder a conversion takes; docs/methods.md has formulas and figures."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

# How the heads of a group become one, from the crudest to the best.
MergeMethod = Literal["mean", "renorm", "align", "merge"]
MERGE_METHODS: tuple[MergeMethod, ...] = get_args(MergeMethod)
HeadGrouping = Literal["contiguous", "similar"]
GROUPINGS: tuple[HeadGrouping, ...] = get_args(HeadGrouping)
# What is fitted anew on calibration data: nothing, o, or o and the MLP's last projection.
Refit = Literal["none", "output", "mlp"]
REFITS: tuple[Refit, ...] = get_args(Refit)
Quality = Literal["fast", "good", "best"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Ladder:
    """`temperature`: the scores of a query head are scaled to be as sharp as before.
    `reconstruct`: steps of gradient descent on each layer's q, k, v and o."""

    method: MergeMethod = "mean"
    grouping: HeadGrouping = "contiguous"
    temperature: bool = False
    refit: Refit = "none"
    reconstruct: int = 0
    seed: int = 0

    @property
    def needs_text(self) -> bool:
        """Whether a rung asks for text that the source is run on."""
        return self.temperature or self.refit != "none" or self.reconstruct > 0


# Methods and qualities that can do without text; a sweep gives their name and WITH_TEXT to what
# reads one.
WITH_TEXT = "+text"
EITHER_WAY = ("renorm", "align", "merge", "fast")
QUALITIES: Mapping[Quality, Ladder] = {
    "fast": Ladder(method="merge", grouping="similar"),
    "good": Ladder(method="merge", grouping="similar", refit="mlp"),
    "best": Ladder(method="merge", grouping="similar", refit="mlp", reconstruct=200),
}
# The same of latents, which are one method by themselves.
LATENT_QUALITIES: Mapping[Quality, Ladder] = {
    "fast": Ladder(),
    "good": Ladder(refit="mlp"),
    "best": Ladder(refit="mlp", reconstruct=200),
}
