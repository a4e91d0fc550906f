"""Comparing two models' predictions of the same tokens."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from .errors import EvaluationFailedError


@dataclass(frozen=True, kw_only=True, slots=True)
class Divergence:
    """Per scored token: KL(original || model) in nats, and whether both rank the same token first.

    Shapes [tokens]; float64 and bool, on the CPU.
    """

    kl: Tensor
    top1: Tensor

    @staticmethod
    def join(parts: Iterable["Divergence"]) -> "Divergence":
        """One after the other."""
        listed = list(parts)
        return Divergence(
            kl=torch.cat([part.kl for part in listed]),
            top1=torch.cat([part.top1 for part in listed]),
        )


def compare(original: Tensor, model: Tensor) -> Divergence:
    """Compares two log-probabilities of shape [tokens, vocabulary].

    KL(P || Q) = sum over the vocabulary of P (log P - log Q), with P the original: what is lost, in
    nats a token, by predicting with Q where P holds (Kullback and Leibler 1951). A token that P
    excludes adds nothing, also where Q excludes it too. Raises EvaluationFailedError where the
    divergence is infinite: Q excludes what P allows.
    """
    p = original.exp()
    terms = torch.where(p > 0, p * (original - model), 0.0)
    kl = terms.sum(-1, dtype=torch.float64).cpu()
    if not torch.isfinite(kl).all():
        raise EvaluationFailedError(
            "the KL divergence is not finite: the model gives no probability at all to a token that"
            " the original expects (try --dtype float32)"
        )
    return Divergence(
        kl=kl,
        top1=(original.argmax(-1) == model.argmax(-1)).cpu(),
    )
