"""What calibration rows begin with.

Rows are cut from the middle of a text, and each begins with whatever stands there. A decoder has
attention sinks at its first token (Xiao et al. 2024, arXiv 2309.17453), of whichever kind that is:
a fit that saw few kinds of them breaks the sinks of others.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from transformers import PreTrainedTokenizerBase

from headcount.running.tokens import begins_with_bos

from .calibration_text import CalibrationText


def with_first_tokens(
    text: CalibrationText, tokenizer: PreTrainedTokenizerBase, *, vocabulary: int, seed: int
) -> CalibrationText:
    """`text`, of which every second row begins with another token than it had: by turns a special
    one (BOS, where the tokenizer puts it before a text) and any of the `vocabulary` that is not."""
    ids, tokens = text.ids.clone(), _tokens(tokenizer, vocabulary, seed)
    for row, token in zip(range(0, len(ids), 2), tokens, strict=False):
        ids[row, 0] = token
    return replace(text, ids=ids)


def _tokens(tokenizer: PreTrainedTokenizerBase, vocabulary: int, seed: int) -> Iterator[int]:
    """Without an end, unless there is none."""
    known = sorted({i for i in tokenizer.all_special_ids if i < vocabulary})
    special = [tokenizer.bos_token_id] if begins_with_bos(tokenizer) else known
    plain = [i for i in range(min(len(tokenizer), vocabulary)) if i not in known]
    generator = torch.Generator().manual_seed(seed)
    while special or plain:
        for kind in (special, plain):
            if kind:
                yield kind[int(torch.randint(len(kind), (), generator=generator))]
