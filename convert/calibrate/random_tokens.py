"""Tokens to run a model on where no text is given: drawn at random, by a seed.

What heads are given to read is far from white: a few features are massive, and first tokens and
others draw attention as sinks (Sun et al. 2024, arXiv 2402.17762). That shows on tokens of any
kind. Half of the rows are drawn evenly from the vocabulary; the other half with a frequency that
falls as 1 / id (Zipf), since vocabularies are mostly ordered by how often their tokens occur.
"""

import torch

from headcount.running.runnable import RunnableModel

from .calibration_text import CalibrationText

RANDOM_TOKENS = 1024
# The share of white inputs beside what random tokens give, which no text is like: for heads that
# are merged; and for latents, which hold what is massive before all else, and then compete for the
# rest (docs/latent.md has the figures).
WHITE_FOR_HEADS, WHITE_FOR_LATENTS = 0.3, 3.0
_ROW, _BATCHES = 128, 4


def random_tokens(runnable: RunnableModel, seed: int, white: float) -> CalibrationText:
    """RANDOM_TOKENS of them, in rows no longer than the model reads, none held out; beside the
    share `white` of white inputs."""
    row = min(_ROW, runnable.max_position_embeddings or _ROW)
    per_batch = RANDOM_TOKENS // row // _BATCHES
    count = per_batch * _BATCHES
    drawn = torch.rand(
        count, row, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    vocabulary = runnable.vocab_size
    evenly, falling = drawn * vocabulary, vocabulary**drawn - 1
    kinds = torch.arange(count)[:, None] % 2 == 0
    ids = torch.where(kinds, evenly, falling).long().clamp(max=vocabulary - 1)
    batches = tuple(slice(i, i + per_batch) for i in range(0, count, per_batch))
    return CalibrationText(
        ids=ids, batches=batches, held=(), sha256="", found=ids.numel(), white=white
    )
