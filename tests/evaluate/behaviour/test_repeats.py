"""Copies of tokens: a model of two heads that copies, one that guesses, and brute force."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from headcount.evaluate.behaviour.passages import passages
from headcount.evaluate.behaviour.repeats import copy_scores, induction_scores, repeated_rows
from headcount.evaluate.behaviour.row_scores import RowScores, score_rows
from headcount.evaluate.errors import EvaluationFailedError
from headcount.heads.sequences import repeated_tokens
from planted_heads import CODES, plant

pytestmark = pytest.mark.needs_convert
TOKENS = 28


def _random(start: int | None = None) -> Any:
    usable = torch.arange(1, CODES)
    return repeated_tokens(usable, tokens=TOKENS, sequences=4, start=start, seed=0)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_an_induction_head_copies_what_followed(name: str) -> None:
    """The model of two heads, put in by hand, ranks the tokens of the second copy first once the
    second head is louder than the token that is read, and knows nothing of the first."""
    model = plant(name, alone=True).model
    output = {"gpt2": "transformer.h.1.attn.c_proj", "llama": "model.layers.1.self_attn.o_proj"}
    with torch.no_grad():
        model.get_submodule(output[name]).weight.mul_(40)
    scores = induction_scores(model, _random())
    assert scores.second_accuracy > 0.97 and scores.first_accuracy < 0.1
    assert scores.gain > 1
    assert scores.scored == 4 * (TOKENS - 1)


def test_a_model_that_guesses_gains_nothing(build: Callable[..., Any]) -> None:
    model = build("llama")
    with torch.no_grad():
        model.lm_head.weight.zero_()
    sequences = repeated_tokens(torch.arange(320), tokens=20, sequences=3, start=0, seed=1)
    scores = induction_scores(model, sequences)
    assert scores.first_loss == pytest.approx(math.log(320), abs=1e-5)
    assert scores.second_loss == pytest.approx(math.log(320), abs=1e-5)


@pytest.mark.parametrize("start", [None, 7])
def test_copies_are_where_they_stand(start: int | None) -> None:
    """Each loss is its token's place, so that the means say which places were taken."""
    begin = 0 if start is None else 1
    length = begin + 2 * 5
    places = torch.arange(1, length, dtype=torch.float64).expand(3, -1)
    scores = RowScores(losses=places, hits=places >= begin + 5 + 3)
    found = copy_scores(scores, start=begin, tokens=5)
    first, second = range(begin + 1, begin + 5), range(begin + 6, begin + 10)
    assert found.first_loss == sum(first) / 4
    assert found.second_loss == sum(second) / 4
    assert found.second_accuracy == sum(place >= begin + 8 for place in second) / 4
    assert (found.first_accuracy, found.scored) == (0, 12)


@torch.no_grad()
@pytest.mark.parametrize("name", ["llama", "gpt2", "mistral"])
def test_rows_are_scored_as_one_by_one(
    build: Callable[..., Any], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In batches and a few positions at a time, against a loop over tokens."""
    monkeypatch.setattr("headcount.evaluate.behaviour.row_scores.BATCH_TOKENS", 26)
    monkeypatch.setattr("headcount.evaluate.logits.CHUNK_ELEMENTS", 320 * 2 * 5)
    model = build(name)
    ids = torch.randint(0, 320, (5, 13), generator=torch.Generator().manual_seed(2))
    scores = score_rows(model, ids, what="rows")
    for row in range(5):
        for place in range(1, 13):
            logits = model(ids[row : row + 1, :place], use_cache=False).logits[0, -1].double()
            loss = -logits.log_softmax(-1)[ids[row, place]].item()
            assert scores.losses[row, place - 1].item() == pytest.approx(loss, abs=5e-5)
            assert scores.hits[row, place - 1].item() == (logits.argmax() == ids[row, place])


def test_a_loss_that_is_not_finite_is_an_error(build: Callable[..., Any]) -> None:
    model = build("llama")
    with torch.no_grad():
        model.model.norm.weight[0] = float("nan")
    with pytest.raises(EvaluationFailedError, match="repeated tokens is not finite"):
        induction_scores(
            model, repeated_tokens(torch.arange(320), tokens=5, sequences=1, start=None, seed=0)
        )


def test_passages_are_spread_over_the_text_and_repeated() -> None:
    ids = torch.arange(100, 131)
    rows = passages(ids, tokens=10, count=5)
    assert rows[:, 0].tolist() == [100, 110, 121]
    repeated = repeated_rows(rows, start=5)
    assert repeated.ids[:, 0].tolist() == [5, 5, 5]
    assert repeated.ids[:, 1:11].equal(rows) and repeated.ids[:, 11:].equal(rows)
    assert (repeated.start, repeated.tokens) == (1, 10)
    assert repeated_rows(rows, start=None).ids.equal(torch.cat([rows, rows], dim=1))


def test_a_short_text_is_taken_again() -> None:
    assert passages(torch.tensor([1, 2, 3]), tokens=5, count=4).tolist() == [[1, 2, 3, 1, 2]]
