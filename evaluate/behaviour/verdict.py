"""Whether a conversion kept what copying from the context is worth."""

from typing import Literal

from .repeats import CopyScores

Word = Literal["kept", "weakened", "destroyed", "none"]
# What the original must have, or there is nothing to lose: tokens ranked first, or nats a token.
LEAST_ACCURACY, LEAST_GAIN = 0.1, 0.5
# Of it, what must be left.
KEPT, WEAKENED = 0.75, 0.25


def share_kept(model: CopyScores, original: CopyScores) -> float | None:
    """What a first copy is worth to the second one, as a share of what it was: tokens more ranked
    first or, where these were less than a tenth, nats a token; None for an original that makes
    nothing of it."""
    if original.more_right >= LEAST_ACCURACY:
        return model.more_right / original.more_right
    return model.gain / original.gain if original.gain >= LEAST_GAIN else None


def verdict(share: float | None) -> Word:
    """`share` in a word."""
    if share is None:
        return "none"
    return "kept" if share >= KEPT else "weakened" if share >= WEAKENED else "destroyed"
