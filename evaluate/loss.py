"""Loss of every token of a text, and how far a second model's predictions are from the first's."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headcount.running.team import Team

from .divergence import Divergence, compare
from .errors import EvaluationFailedError
from .logits import RowLogits
from .windows import Window


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowLosses:
    """Of every position that `window` reads, the loss of the token after it: shape [positions],
    float64 on the CPU; `original` is None without one."""

    window: Window
    model: Tensor
    original: Tensor | None

    @property
    def scored(self) -> slice:
        """The positions whose tokens this window scores; an earlier one scores those before."""
        return slice(self.window.first - 1 - self.window.start, None)


@dataclass(frozen=True, kw_only=True, slots=True)
class TextScores:
    """Per scored token, in the order of the text, float64 on the CPU: shapes [tokens].

    `losses` are negative log-likelihoods in nats; `original_losses` and `divergence` are those of
    the original model and against it, None without one. `windows` are the windows in their order,
    empty unless they were asked for.
    """

    losses: Tensor
    original_losses: Tensor | None
    divergence: Divergence | None
    windows: tuple[WindowLosses, ...] = ()


_NONE = TextScores(losses=torch.empty(0), original_losses=None, divergence=None)


@torch.inference_mode()
def score_text(
    model: PreTrainedModel,
    ids: Tensor,
    windows: Sequence[Window],
    *,
    chunk: int,
    bos: bool = False,
    original: PreTrainedModel | None = None,
    whole: bool = False,
    team: Team | None = None,
    advance: Callable[[], object] = lambda: None,
) -> TextScores:
    """Scores the tokens `ids` ([tokens], on the models' device) window by window.

    `bos`: the first of `ids` is BOS, and stands in the first place of every window, where the model
    saw it in training; a model that lacks it there can be off by orders of magnitude. `whole`: the
    losses of all that a window reads are kept, too. At most `chunk` positions have logits at a
    time. The processes of `team` take windows in turn, and the main one gets all scores, one by
    one, with an `advance` for each; the others get none. Raises EvaluationFailedError at the first
    token whose loss is not finite.
    """
    team = Team() if team is None else team
    scored: list[_Scored] = []

    def make(item: tuple[int, Window]) -> Iterator[Tensor]:
        read = _ReadWindow(model, original, ids, item[1], bos=bos)
        return iter(_scored(read, item[1], chunk=chunk, whole=whole).tensors())

    def take(item: tuple[int, Window], tensors: Iterator[Tensor]) -> None:
        scored.append(_Scored.of(tensors, compared=original is not None, whole=whole))
        advance()

    team.each(list(enumerate(windows)), lambda item: item[0] % team.count, make, take)
    return _joined(scored, windows) if team.is_main else _NONE


@dataclass(frozen=True, kw_only=True, slots=True)
class _Scored:
    """What a window gives: of the tokens that it scores, and the losses of all that it reads."""

    text: TextScores
    read: tuple[Tensor, Tensor | None] | None

    def tensors(self) -> list[Tensor]:
        """All of them, in the order in which `of` reads them."""
        text = self.text
        compared = () if text.divergence is None else (text.divergence.kl, text.divergence.top1)
        found = (text.losses, text.original_losses, *compared, *(self.read or ()))
        return [tensor for tensor in found if tensor is not None]

    @classmethod
    def of(cls, tensors: Iterator[Tensor], *, compared: bool, whole: bool) -> "_Scored":
        """From `tensors`; `compared`: of a model with its original, `whole`: with all losses."""

        def next_if(there: bool) -> Tensor | None:
            return next(tensors) if there else None

        losses, originals = next(tensors), next_if(compared)
        divergence = Divergence(kl=next(tensors), top1=next(tensors)) if compared else None
        return cls(
            text=TextScores(losses=losses, original_losses=originals, divergence=divergence),
            read=(next(tensors), next_if(compared)) if whole else None,
        )


def _scored(read: "_ReadWindow", window: Window, *, chunk: int, whole: bool) -> _Scored:
    own = [read.scores(*part) for part in _chunks(window.first, window.stop + 1, chunk)]
    if not whole:
        return _Scored(text=_text_scores(own), read=None)
    context = _chunks(window.start + 1, window.first, chunk)
    before = [read.scores(*part, compared=False) for part in context]
    return _Scored(text=_text_scores(own), read=_losses([*before, *own]))


def _text_scores(parts: Sequence[TextScores]) -> TextScores:
    losses, originals = _losses(parts)
    compared = [part.divergence for part in parts if part.divergence is not None]
    return TextScores(
        losses=losses,
        original_losses=originals,
        divergence=Divergence.join(compared) if compared else None,
    )


def _joined(scored: Sequence[_Scored], windows: Sequence[Window]) -> TextScores:
    """The scores of all windows."""
    kept = [
        WindowLosses(window=window, model=one.read[0], original=one.read[1])
        for window, one in zip(windows, scored, strict=True)
        if one.read is not None
    ]
    return replace(_text_scores([one.text for one in scored]), windows=tuple(kept))


def _chunks(first: int, stop: int, size: int) -> Iterator[tuple[int, int]]:
    for start in range(first, stop, size):
        yield start, min(start + size, stop)


def _losses(parts: Sequence[TextScores]) -> tuple[Tensor, Tensor | None]:
    originals = [part.original_losses for part in parts if part.original_losses is not None]
    return torch.cat([part.losses for part in parts]), torch.cat(originals) if originals else None


class _ReadWindow:
    """One window as both models read it."""

    def __init__(
        self,
        model: PreTrainedModel,
        original: PreTrainedModel | None,
        ids: Tensor,
        window: Window,
        *,
        bos: bool,
    ) -> None:
        input_ids = ids[window.start : window.stop].unsqueeze(0)
        if bos:
            input_ids = torch.cat([ids[None, :1], input_ids[:, 1:]], dim=1)
        self._ids, self._start = ids, window.start
        read = {"input_ids": input_ids}
        self._logits = RowLogits(model, read)
        self._original_logits = None if original is None else RowLogits(original, read)

    def scores(self, first: int, last: int, *, compared: bool = True) -> TextScores:
        """Of the tokens `[first, last)`; `compared`: with the divergence from the original."""
        # The position that reads token t - 1 predicts token t; the window's first is position 0.
        at = (first - 1 - self._start, last - 1 - self._start)
        targets = self._ids[first:last]
        log_probs = log_probabilities(self._logits.at(*at)[0])
        losses = token_losses(log_probs, targets, first=first, role="model")
        if self._original_logits is None:
            return TextScores(losses=losses, original_losses=None, divergence=None)
        originals = log_probabilities(self._original_logits.at(*at)[0])
        return TextScores(
            losses=losses,
            original_losses=token_losses(originals, targets, first=first, role="original"),
            divergence=compare(originals, log_probs) if compared else None,
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
