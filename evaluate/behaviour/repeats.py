"""What a second look at the same tokens is worth: of random ones (induction), and of a text."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headcount.heads.sequences import RepeatedTokens

from .row_scores import RowScores, score_rows


@dataclass(frozen=True, kw_only=True, slots=True)
class CopyScores:
    """Means over the tokens of a copy but its first, which nothing before tells: losses in nats,
    and the shares of tokens that were ranked first. `scored` tokens in each copy of all sequences.

    On random tokens `second_loss` is the induction loss (Olsson et al. 2022, arXiv 2209.11895).
    """

    first_loss: float
    second_loss: float
    first_accuracy: float
    second_accuracy: float
    scored: int

    @property
    def gain(self) -> float:
        """Nats a token that the first copy is worth to the second."""
        return self.first_loss - self.second_loss

    @property
    def more_right(self) -> float:
        """Share of tokens that are ranked first only the second time."""
        return self.second_accuracy - self.first_accuracy

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "gain": self.gain}


def induction_scores(model: PreTrainedModel, sequences: RepeatedTokens) -> CopyScores:
    """The copies of `sequences` as `model` predicts them. Raises EvaluationFailedError."""
    scores = score_rows(model, sequences.ids, what="repeated tokens")
    return copy_scores(scores, start=sequences.start, tokens=sequences.tokens)


def copy_scores(scores: RowScores, *, start: int, tokens: int) -> CopyScores:
    """Of rows that hold, after `start` tokens, `tokens` tokens and these once more."""
    second_start = start + tokens
    first = scores.part(start + 1, second_start)
    second = scores.part(second_start + 1, second_start + tokens)
    return CopyScores(
        first_loss=first.losses.mean().item(),
        second_loss=second.losses.mean().item(),
        first_accuracy=first.hits.double().mean().item(),
        second_accuracy=second.hits.double().mean().item(),
        scored=second.losses.numel(),
    )


def repeated_rows(copy: Tensor, *, start: int | None) -> RepeatedTokens:
    """Each row of `copy` ([rows, tokens]) twice, behind the token `start` if there is one."""
    begin = copy.new_full((len(copy), 0 if start is None else 1), start or 0)
    ids = torch.cat([begin, copy, copy], dim=1)
    return RepeatedTokens(ids=ids, tokens=copy.shape[1], start=begin.shape[1])
