"""Rows of tokens, cut from texts: nothing but texts and tokenizer decide."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headcount.model.errors import HeadcountError

from .rows import Reading, Rows, held_share


@dataclass(frozen=True, kw_only=True, slots=True)
class TextPart:
    """`ids` [rows, sequence_length + 1]: the model reads all but the last token of a row, and
    predicts all but the first. A forward reads any number of rows."""

    ids: Tensor

    def __len__(self) -> int:
        return len(self.ids)

    def tokens(self, numbers: Tensor) -> int:
        return len(numbers) * (self.ids.shape[1] - 1)

    def forwards(self, numbers: Tensor) -> list[Tensor]:
        return [numbers] if len(numbers) else []

    def reading(self, numbers: Tensor) -> Reading:
        ids = self.ids[numbers]
        return Reading(inputs={"input_ids": ids[:, :-1]}, targets=ids[:, 1:])


def pack_rows(
    texts: Sequence[Tensor], *, sequence_length: int, held_out: int, end: int | None
) -> Rows:
    """Cuts the token ids of `texts` ([tokens] each) into rows, without padding.

    The last part of every text is held out: `held_out` tokens of all together, at most a tenth of
    each. What is left of the texts is joined, with the token `end` behind each if there is one, and
    cut every `sequence_length` tokens; the rest at the end is dropped. Raises HeadcountError if
    either part does not fill a row.
    """
    total = sum(len(text) for text in texts)
    share = held_share(held_out, total)
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
    train, held = (TextPart(ids=part) for part in rows)
    return Rows(train=train, held_out=held, sequence_length=sequence_length)


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
