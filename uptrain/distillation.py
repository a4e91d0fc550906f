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

Span = tuple[int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Objective:
    """Loss = KL + `cross_entropy` * cross-entropy + `hidden_loss` * hidden, in nats a token.

    KL is that of Hinton et al. 2015 (arXiv 1503.02531, section 2): T^2 KL(teacher || student) of
    the softmax of logits / T. Hidden is the mean over tokens and the layers' outputs of
    |student - teacher|^2 / |teacher|^2.
    """

    temperature: float = 1.0
    cross_entropy: float = 0.0
    hidden_loss: float = 0.0


class Distillation(nn.Module):
    """The student with its loss as one module, so that what is wrapped around a module (DDP, FSDP,
    autocast) is around both.

    Logits that are too large to be held are made a few positions at a time, and once more for the
    gradient; `chunk_elements` of them are few enough.
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

    def forward(self, rows: Tensor, teacher: PreTrainedModel, scores: bool = False) -> Tensor:
        """The mean loss over `rows` ([rows, tokens + 1]): a number with a gradient.

        With `scores` no gradient is kept, and four sums over the tokens are returned, in float64:
        the teacher's and the student's loss, KL(teacher || student), and how often both rank the
        same token first. Raises EvaluationFailedError where these are not finite.
        """
        with torch.set_grad_enabled(not scores):
            pair = _Pair(self.student, teacher, rows, hidden=bool(self.objective.hidden_loss))
            spans = self._spans(rows)
            if len(spans) > 1:
                pair.run_layers()
            if scores:
                return torch.stack([pair.scores(span) for span in spans]).sum(0).to(rows.device)
            total = torch.stack([self._summed(pair, span, len(spans) > 1) for span in spans]).sum()
            loss = total / rows[:, 1:].numel()
            if self.objective.hidden_loss:
                loss = loss + self.objective.hidden_loss * pair.hidden_loss()
            return loss

    def _spans(self, rows: Tensor) -> list[Span]:
        tokens = rows.shape[1] - 1
        vocab_size: int = self.student.config.get_text_config().vocab_size
        chunk = max(1, self._chunk_elements // (vocab_size * len(rows)))
        return [(start, min(start + chunk, tokens)) for start in range(0, tokens, chunk)]

    def _summed(self, pair: "_Pair", span: Span, again: bool) -> Tensor:
        """The summed loss of a span's tokens; `again`: its logits are not kept for the gradient."""
        if not again:
            return pair.loss(span, self.objective)
        summed: Tensor = checkpoint(
            pair.loss, span, self.objective, use_reentrant=False, preserve_rng_state=False
        )
        return summed


class _Pair:
    """Student and teacher on the same rows. Nothing of the teacher has a gradient."""

    def __init__(
        self, student: PreTrainedModel, teacher: PreTrainedModel, rows: Tensor, *, hidden: bool
    ) -> None:
        read, self._targets = rows[:, :-1], rows[:, 1:]
        options = {"output_hidden_states": True} if hidden else {}
        self._student = RowLogits(student, read, **options)
        self._teacher = RowLogits(teacher, read, **options)

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
        """Mean over the layers' outputs; the first entry is what goes into the first layer. Every
        token has its own scale, so that parts of a batch add up to the batch."""
        assert self._student.hidden_states is not None and self._teacher.hidden_states is not None
        pairs = list(zip(self._student.hidden_states, self._teacher.hidden_states, strict=True))
        terms = [
            (mine.float() - theirs.float()).square().sum(-1) / theirs.float().square().sum(-1)
            for mine, theirs in pairs[1:]
        ]
        return torch.stack(terms).mean()

    def _logits(self, span: Span) -> tuple[Tensor, Tensor]:
        whole = span == (0, self._targets.shape[1])
        student = self._student.whole() if whole else self._student.at(*span)
        with torch.no_grad():
            teacher = self._teacher.whole() if whole else self._teacher.at(*span)
        return student, teacher
