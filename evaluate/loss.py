"""Loss of every token of a text, and how far a second model's predictions are from the first's."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from .divergence import Divergence, compare
from .errors import EvaluationFailedError
from .logits import RowLogits
from .windows import Window


@dataclass(frozen=True, kw_only=True, slots=True)
class TextScores:
    """Per scored token, in the order of the text, float64 on the CPU: shapes [tokens].

    `losses` are negative log-likelihoods in nats; `original_losses` and `divergence` are those of
    the original model and against it, None without one.
    """

    losses: Tensor
    original_losses: Tensor | None
    divergence: Divergence | None


@torch.inference_mode()
def score_text(
    model: PreTrainedModel,
    ids: Tensor,
    windows: Iterable[Window],
    *,
    chunk: int,
    bos: bool = False,
    original: PreTrainedModel | None = None,
) -> TextScores:
    """Scores the tokens `ids` ([tokens], on the models' device) window by window.

    `bos`: the first of `ids` is BOS, and stands in the first place of every window, where the model
    saw it in training; a model that lacks it there can be off by orders of magnitude. At most
    `chunk` positions have logits at a time. Raises EvaluationFailedError at the first token whose
    loss is not finite.
    """
    parts = [
        part
        for window in windows
        for part in _score_window(model, original, ids, window, chunk=chunk, bos=bos)
    ]
    return TextScores(
        losses=torch.cat([part.losses for part in parts]),
        original_losses=None
        if original is None
        else torch.cat([p.original_losses for p in parts if p.original_losses is not None]),
        divergence=None
        if original is None
        else Divergence.join(p.divergence for p in parts if p.divergence is not None),
    )


def _score_window(
    model: PreTrainedModel,
    original: PreTrainedModel | None,
    ids: Tensor,
    window: Window,
    *,
    chunk: int,
    bos: bool,
) -> Iterator[TextScores]:
    input_ids = ids[window.start : window.stop].unsqueeze(0)
    if bos:
        input_ids = torch.cat([ids[None, :1], input_ids[:, 1:]], dim=1)
    logits = RowLogits(model, input_ids)
    original_logits = None if original is None else RowLogits(original, input_ids)
    for first in range(window.first, window.stop + 1, chunk):
        last = min(first + chunk, window.stop + 1)
        # The position that reads token t - 1 predicts token t; the window's first is position 0.
        at = (first - 1 - window.start, last - 1 - window.start)
        targets = ids[first:last]
        log_probs = log_probabilities(logits.at(*at)[0])
        losses = token_losses(log_probs, targets, first=first, role="model")
        if original_logits is None:
            yield TextScores(losses=losses, original_losses=None, divergence=None)
            continue
        original_log_probs = log_probabilities(original_logits.at(*at)[0])
        yield TextScores(
            losses=losses,
            original_losses=token_losses(original_log_probs, targets, first=first, role="original"),
            divergence=compare(original_log_probs, log_probs),
        )


def log_probabilities(logits: Tensor) -> Tensor:
    """Log-softmax over the vocabulary, in float32, or float64 for logits in float64."""
    dtype = torch.float64 if logits.dtype == torch.float64 else torch.float32
    return torch.log_softmax(logits, dim=-1, dtype=dtype)


def token_losses(log_probs: Tensor, targets: Tensor, *, first: int, role: str) -> Tensor:
    """Negative log-likelihoods in nats of `targets` ([n]) under `log_probs` ([n, vocabulary]).

    `first` is the place of the first target in the text, for the error's text only.
    """
    losses = -log_probs.gather(-1, targets.unsqueeze(-1)).squeeze(-1).double().cpu()
    finite = torch.isfinite(losses)
    if not finite.all():
        place = int(finite.logical_not().nonzero()[0])
        raise EvaluationFailedError(
            f"the {role}'s loss of token {first + place:,} is {losses[place].item()}: its weights"
            " are damaged, or the dtype overflows (try --dtype float32)"
        )
    return losses
