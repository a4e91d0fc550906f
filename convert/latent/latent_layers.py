"""Every layer whose keys and values are to be rebuilt from a latent, in order."""

from collections.abc import Iterator

from headcount.running.progress import progress_bar

from ..plan.rewriting import Rewriting
from ..rewrite.layer import MadeBefore, RewrittenLayer
from .by_weights import layers_by_weights


def latent_layers(
    rewriting: Rewriting, done: MadeBefore, progress: bool
) -> Iterator[RewrittenLayer]:
    """By the weights alone. A layer that `done` has is not computed again. `progress`: a bar on
    stderr, if that is a terminal. Raises HeadcountError."""
    layers = layers_by_weights(rewriting, done)
    count = len(rewriting.layers)
    yield from progress_bar(layers, "latents", "layer", shown=progress, total=count)
