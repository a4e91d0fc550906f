"""What is called kept, weakened and destroyed."""

import pytest

from headcount.evaluate.behaviour.repeats import CopyScores
from headcount.evaluate.behaviour.verdict import share_kept, verdict

pytestmark = pytest.mark.needs_convert


def _scores(right: float, loss: float, *, before: float = 0.0) -> CopyScores:
    return CopyScores(
        first_loss=10.0,
        second_loss=loss,
        first_accuracy=before,
        second_accuracy=right,
        scored=100,
    )


@pytest.mark.parametrize(
    ("model", "original", "word"),
    [
        (_scores(0.0, 9.0), _scores(0.65, 2.0), "destroyed"),  # of SmolLM2-135M, on random tokens
        (_scores(0.26, 4.0, before=0.3), _scores(0.94, 0.4, before=0.4), "destroyed"),
        (_scores(0.3, 5.0), _scores(0.65, 2.0), "weakened"),
        (_scores(0.6, 2.5), _scores(0.65, 2.0), "kept"),
        (_scores(0.0, 9.4), _scores(0.01, 9.0), "weakened"),  # in nats: no token is ranked first
        (_scores(0.0, 9.9), _scores(0.01, 9.0), "destroyed"),
        (_scores(0.0, 11.0), _scores(0.01, 9.0), "destroyed"),
        (_scores(0.0, 9.0), _scores(0.05, 9.8), "none"),
    ],
)
def test_the_word_follows_what_is_left(model: CopyScores, original: CopyScores, word: str) -> None:
    assert verdict(share_kept(model, original)) == word
