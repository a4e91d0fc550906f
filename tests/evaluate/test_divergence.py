"""KL divergence and agreement on distributions that can be worked out by hand."""

import math

import pytest
import torch
from torch import Tensor

from headcount.evaluate.divergence import compare
from headcount.evaluate.errors import EvaluationFailedError

pytestmark = pytest.mark.needs_convert


def _log(*probabilities: float) -> Tensor:
    return torch.tensor([probabilities], dtype=torch.float64).log()


def test_the_original_comes_first() -> None:
    p, q = _log(0.5, 0.25, 0.25), _log(0.25, 0.25, 0.5)
    assert compare(p, q).kl.item() == pytest.approx(0.25 * math.log(2))
    assert not compare(p, q).top1.item()
    skewed = _log(0.75, 0.25), _log(0.5, 0.5)
    expected = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    assert compare(*skewed).kl.item() == pytest.approx(expected)


def test_what_the_original_excludes_adds_nothing() -> None:
    assert compare(_log(1.0, 0.0), _log(0.5, 0.5)).kl.item() == pytest.approx(math.log(2))
    assert compare(_log(1.0, 0.0), _log(1.0, 0.0)).kl.item() == 0


def test_an_infinite_divergence_fails() -> None:
    with pytest.raises(EvaluationFailedError, match="not finite"):
        compare(_log(0.5, 0.5), _log(1.0, 0.0))
