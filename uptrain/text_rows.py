"""Rows of tokens to train on and to measure on, and which rows a step reads: nothing but texts,
tokenizer and seed decide."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from headcount.model.errors import HeadcountError

LARGEST_HELD_OUT_SHARE = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class TextRows:
    """Rows of `sequence_length + 1` tokens: the model reads all but the last, and predicts all but
    the first. Shapes [rows, sequence_length + 1]; `held_out` is never trained on."""

    train: Tensor
    held_out: Tensor

    @property
    def sequence_length(self) -> int:
        """Tokens that the model reads of a row."""
        return self.train.shape[1] - 1


def pack_rows(
    texts: Sequence[Tensor], *, sequence_length: int, held_out: int, end: int | None
) -> TextRows:
    """Cuts the token ids of `texts` ([tokens] each) into rows, without padding.

    The last part of every text is held out: `held_out` tokens of all together, at most a tenth of
    each. What is left of the texts is joined, with the token `end` behind each if there is one, and
    cut every `sequence_length` tokens; the rest at the end is dropped. Raises HeadcountError if
    either part does not fill a row.
    """
    total = sum(len(text) for text in texts)
    share = min(held_out / max(total, 1), LARGEST_HELD_OUT_SHARE)
    cuts = [len(text) - round(len(text) * share) for text in texts]
    kept = _joined([text[:cut] for text, cut in zip(texts, cuts, strict=True)], end)
    tail = _joined([text[cut:] for text, cut in zip(texts, cuts, strict=True)], end)
    rows = [_cut(part, sequence_length) for part in (kept, tail)]
    if not all(len(part) for part in rows):
        raise HeadcountError(
            f"the text has {total:,} tokens, of which {len(tail):,} are held out, and each part"
            f" must fill a row of {sequence_length:,}: give more text, or a smaller"
            " --sequence-length (or a larger --held-out, up to a tenth of the text)"
        )
    return TextRows(train=rows[0], held_out=rows[1])


def batch_rows(step: int, *, rows: int, batch_size: int, seed: int) -> Tensor:
    """The numbers of the rows that step `step` reads: [batch_size].

    Every pass over the rows has an order of its own, drawn from the seed; rows that do not fill a
    batch at its end are left to other passes.
    """
    passed, place = divmod(step, rows // batch_size)
    return _order(rows, seed, passed)[place * batch_size :][:batch_size]


@lru_cache(maxsize=2)
def _order(rows: int, seed: int, passed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed * 1_000_003 + passed)
    return torch.randperm(rows, generator=generator)


def _joined(texts: Sequence[Tensor], end: int | None) -> Tensor:
    """One after the other, with `end` behind each that is not empty."""
    ends = [] if end is None else [torch.tensor([end])]
    return torch.cat(
        [torch.empty(0, dtype=torch.int64)]
        + [part for text in texts if len(text) for part in (text, *ends)]
    )


def _cut(tokens: Tensor, length: int) -> Tensor:
    """[rows, length + 1], each beginning with the last token of the one before it."""
    if len(tokens) <= length:
        return torch.empty(0, length + 1, dtype=torch.int64)
    return tokens.unfold(0, length + 1, length)
