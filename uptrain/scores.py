"""What a student is worth on held-out rows, beside its teacher."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Scores:
    """Means over `tokens` tokens: losses and KL(teacher || student) in nats a token."""

    loss: float
    teacher_loss: float
    kl_divergence: float
    top1_agreement: float
    tokens: int

    @property
    def delta_loss(self) -> float:
        """What the student's loss lies above the teacher's."""
        return self.loss - self.teacher_loss

    def document(self) -> dict[str, Any]:
        """One model's entry in documents."""
        return {**asdict(self), "perplexity": perplexity(self.loss), "delta_loss": self.delta_loss}


def sum_scores(sums: Sequence[float], *, tokens: int) -> Scores:
    """Means from the four sums that `Distillation` gives."""
    teacher, student, kl, agreed = (value / tokens for value in sums)
    return Scores(
        loss=student,
        teacher_loss=teacher,
        kl_divergence=kl,
        top1_agreement=agreed,
        tokens=tokens,
    )


def read_scores(document: dict[str, Any]) -> Scores:
    """The inverse of `document`."""
    keys = ("loss", "teacher_loss", "kl_divergence", "top1_agreement", "tokens")
    return Scores(**{key: document[key] for key in keys})


def perplexity(loss: float) -> float | None:
    """exp(loss); None where that is beyond a float."""
    try:
        return math.exp(loss)
    except OverflowError:
        return None


def closed(before: float, after: float) -> float | None:
    """The share of a gap that is closed; None where there was none."""
    return 1 - after / before if before > 0 else None
