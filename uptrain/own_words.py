"""What the original says of the lines of a text: targets for an encoder-decoder without pairs."""

from collections.abc import Iterator
from dataclasses import replace
from math import ceil

import torch
from transformers import PreTrainedTokenizerBase

from headcount.running.load import load_model
from headcount.running.pairs.encoded_pairs import Encoder, encoded_source
from headcount.running.pairs.pairs_file import Pair, Pairs, pairs_of_lines
from headcount.running.placement import Placement
from headcount.running.progress import progress_bar
from headcount.running.runnable import RunnableModel
from headcount.running.text import read_text

from .rows import LARGEST_HELD_OUT_SHARE
from .uptrain_request import UptrainRequest

# By file and line: the tokens that are said.
OwnWords = tuple[tuple[tuple[int, ...], ...], ...]


def read_lines(request: UptrainRequest) -> tuple[Pairs, ...]:
    """The lines of each text, no more than all steps read and what is held out beside them: each
    has to be answered. Raises HeadcountError."""
    most = ceil(request.steps * request.batch_size / (1 - LARGEST_HELD_OUT_SHARE))
    files = [pairs_of_lines(read_text(path)) for path in request.texts]
    return tuple(replace(lines, pairs=lines.pairs[:most]) for lines in files)


@torch.inference_mode()
def own_words(
    request: UptrainRequest,
    teacher: RunnableModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    positions: int,
    place: Placement,
    dtype: torch.dtype,
) -> OwnWords:
    """Of every line, cut after `positions` tokens on both sides, in the order of the files. Raises
    HeadcountError."""
    files = read_lines(request)
    encoder = Encoder.of(load_model(teacher, dtype=dtype, place=place).model)
    total = sum(len(lines.pairs) for lines in files)

    def said(pairs: tuple[Pair, ...]) -> Iterator[tuple[int, ...]]:
        assert encoder.says is not None
        for pair in pairs:
            source = encoded_source(pair, tokenizer, encoder, positions, "--text")
            target = encoder.says(source.to(encoder.device))[0, :positions]
            bar.update()
            yield tuple(target.tolist())

    with progress_bar(None, "asking the original", "line", total=total) as bar:
        return tuple(tuple(said(lines.pairs)) for lines in files)
