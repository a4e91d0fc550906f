"""How well a model predicts rows of tokens: the loss of every token, and whether it came first."""

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headcount.running.placement import inputs_device

from ..errors import EvaluationFailedError
from ..logits import RowLogits, chunk_positions
from ..loss import log_probabilities

BATCH_TOKENS = 4096  # read together: rows that are short are run side by side


@dataclass(frozen=True, kw_only=True, slots=True)
class RowScores:
    """Of each token but a row's first, on the CPU: `losses` [rows, tokens - 1] are negative
    log-likelihoods in nats, float64; `hits` of the same shape whether it was ranked first."""

    losses: Tensor
    hits: Tensor

    def part(self, start: int, stop: int) -> "RowScores":
        """Only the tokens that stand at `[start, stop)` of their rows; `start` is at least 1."""
        columns = slice(start - 1, stop - 1)
        return RowScores(losses=self.losses[:, columns], hits=self.hits[:, columns])


@torch.inference_mode()
def score_rows(model: PreTrainedModel, ids: Tensor, *, what: str) -> RowScores:
    """Scores `ids` ([rows, tokens]), each row by itself, a few positions at a time.

    `what` names the rows in the error's text. Raises EvaluationFailedError at a loss that is not
    finite.
    """
    batches = ids.split(max(1, BATCH_TOKENS // ids.shape[1]))
    parts = [_score_batch(model, batch.to(inputs_device(model))) for batch in batches]
    scores = RowScores(
        losses=torch.cat([part.losses for part in parts]),
        hits=torch.cat([part.hits for part in parts]),
    )
    if not torch.isfinite(scores.losses).all():
        raise EvaluationFailedError(
            f"a loss on {what} is not finite: the model gives no probability at all to a token"
            " (try --dtype float32, or --behaviour none)"
        )
    return scores


def _score_batch(model: PreTrainedModel, ids: Tensor) -> RowScores:
    rows, tokens = ids.shape
    logits = RowLogits(model, {"input_ids": ids})
    vocabulary = model.config.get_text_config().vocab_size
    step = max(1, chunk_positions(vocabulary) // rows)
    losses, hits = [], []
    for first in range(0, tokens - 1, step):
        last = min(first + step, tokens - 1)
        targets = ids[:, first + 1 : last + 1]
        scores = log_probabilities(logits.at(first, last))
        losses.append(-scores.gather(-1, targets.unsqueeze(-1)).squeeze(-1).double().cpu())
        hits.append((scores.argmax(-1) == targets).cpu())
    return RowScores(losses=torch.cat(losses, dim=1), hits=torch.cat(hits, dim=1))
