"""What is learned: to predict what the original predicts, token by token."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from headcount.evaluate.divergence import compare
from headcount.evaluate.logits import CHUNK_ELEMENTS, RowLogits
from headcount.evaluate.loss import log_probabilities, token_losses

from .rows import Reading

Span = tuple[int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Objective:
    """Loss = KL + `cross_entropy` * cross-entropy + `hidden_loss` * hidden, in nats a token.

    KL is that of Hinton et al. 2015 (arXiv 1503.02531, section 2): T^2 KL(teacher || student) of
    the softmax of logits / T. Hidden is the mean over tokens and the layers' outputs of
    |student - teacher|^2 / |teacher|^2: of an encoder-decoder the mean over the layers of both
    stacks, each of which has its own tokens.
    """

    temperature: float = 1.0
    cross_entropy: float = 0.0
    hidden_loss: float = 0.0


class Distillation(nn.Module):
    """The student with its loss as one module, so that what is wrapped around a module (DDP, FSDP,
    autocast) is around both.

    Logits that are too large to be held are made a few positions at a time, and once more for the
    gradient; `chunk_elements` of them are few enough. Of an encoder-decoder, which reads one pair
    at a time, all are held.
    """

    def __init__(
        self,
        student: PreTrainedModel,
        objective: Objective,
        *,
        chunk_elements: int = CHUNK_ELEMENTS,
    ) -> None:
        super().__init__()
        self.student = student
        self.objective = objective
        self._chunk_elements = chunk_elements

    def forward(self, read: Reading, teacher: PreTrainedModel, scores: bool = False) -> Tensor:
        """The mean loss over the tokens that are predicted: a number with a gradient.

        With `scores` no gradient is kept, and four sums over the tokens are returned, in float64:
        the teacher's and the student's loss, KL(teacher || student), and how often both rank the
        same token first. Raises EvaluationFailedError where these are not finite.
        """
        with torch.set_grad_enabled(not scores):
            both = _Both(self.student, teacher, read, hidden=bool(self.objective.hidden_loss))
            spans = self._spans(read)
            if len(spans) > 1:
                both.run_layers()
            if scores:
                return (
                    torch.stack([both.scores(span) for span in spans])
                    .sum(0)
                    .to(read.targets.device)
                )
            total = torch.stack([self._summed(both, span, len(spans) > 1) for span in spans]).sum()
            loss = total / read.targets.numel()
            if self.objective.hidden_loss:
                loss = loss + self.objective.hidden_loss * both.hidden_loss()
            return loss

    def _spans(self, read: Reading) -> list[Span]:
        rows, tokens = read.targets.shape
        if read.has_encoder:
            return [(0, tokens)]
        vocab_size: int = self.student.config.get_text_config().vocab_size
        chunk = max(1, self._chunk_elements // (vocab_size * rows))
        return [(start, min(start + chunk, tokens)) for start in range(0, tokens, chunk)]

    def _summed(self, both: "_Both", span: Span, again: bool) -> Tensor:
        """The summed loss of a span's tokens; `again`: its logits are not kept for the gradient."""
        if not again:
            return both.loss(span, self.objective)
        summed: Tensor = checkpoint(
            both.loss, span, self.objective, use_reentrant=False, preserve_rng_state=False
        )
        return summed


class _Both:
    """Student and teacher, which read the same. Nothing of the teacher has a gradient."""

    def __init__(
        self, student: PreTrainedModel, teacher: PreTrainedModel, read: Reading, *, hidden: bool
    ) -> None:
        self._targets = read.targets
        options = {"output_hidden_states": True} if hidden else {}
        self._student = RowLogits(student, read.inputs, **options)
        self._teacher = RowLogits(teacher, read.inputs, **options)

    def run_layers(self) -> None:
        """Runs both up to their heads, which then run by themselves."""
        self._student.at(0, 1)
        with torch.no_grad():
            self._teacher.at(0, 1)

    def loss(self, span: Span, objective: Objective) -> Tensor:
        student, teacher = self._logits(span)
        temperature = objective.temperature
        wanted = log_probabilities(teacher / temperature)
        p = wanted.exp()
        terms = torch.where(p > 0, p * (wanted - log_probabilities(student / temperature)), 0.0)
        loss = temperature**2 * terms.sum()
        if objective.cross_entropy:
            log_probs = log_probabilities(student).flatten(0, 1)
            targets = self._targets[:, slice(*span)].flatten()
            loss = loss + objective.cross_entropy * F.nll_loss(log_probs, targets, reduction="sum")
        return loss

    def scores(self, span: Span) -> Tensor:
        """The four sums, [4], on the CPU."""
        student, teacher = (log_probabilities(x).flatten(0, 1) for x in self._logits(span))
        targets = self._targets[:, slice(*span)].flatten()
        divergence = compare(teacher, student)
        return torch.stack(
            [
                token_losses(teacher, targets, first=0, role="teacher").sum(),
                token_losses(student, targets, first=0, role="student").sum(),
                divergence.kl.sum(),
                divergence.top1.double().sum(),
            ]
        )

    def hidden_loss(self) -> Tensor:
        """Mean over the layers' outputs; a stack's first entry is what goes into its first layer.
        Every token has its own scale, so that parts of a batch add up to the batch."""
        stacks = zip(self._student.hidden_states, self._teacher.hidden_states, strict=True)
        terms = [
            _relative(mine, theirs).mean()
            for own, other in stacks
            for mine, theirs in list(zip(own, other, strict=True))[1:]
        ]
        return torch.stack(terms).mean()

    def _logits(self, span: Span) -> tuple[Tensor, Tensor]:
        whole = span == (0, self._targets.shape[1])
        student = self._student.whole() if whole else self._student.at(*span)
        with torch.no_grad():
            teacher = self._teacher.whole() if whole else self._teacher.at(*span)
        return student, teacher


def _relative(mine: Tensor, theirs: Tensor) -> Tensor:
    """By token: the squared error, of the square of what should be."""
    wanted = theirs.float()
    return (mine.float() - wanted).square().sum(-1) / wanted.square().sum(-1)
