"""Scores of patterns that are made by hand, against what they are by definition."""

import math

import pytest
import torch

from headcount.heads.attentions import DecoderAttention
from headcount.heads.heads_request import Thresholds, parse_thresholds
from headcount.heads.measured import measured_attention
from headcount.heads.roles import excess, roles_of
from headcount.heads.scores import (
    cross_attention_sums,
    distance_profile,
    monotony,
    self_attention_sums,
    targets_of,
)
from headcount.heads.sequences import repeated_tokens, resolve_tokens
from headcount.model.errors import HeadcountError
from headcount.model.mixers import Attention

pytestmark = pytest.mark.needs_convert

IDS = torch.tensor([[5, 6, 7, 5, 6, 7]])


def looking(*places: int) -> torch.Tensor:
    """[1, 1, T, T]: each query gives all its attention to one key."""
    return torch.nn.functional.one_hot(torch.tensor(places), len(places))[None, None].float()


def uniform(tokens: int) -> torch.Tensor:
    rows = torch.ones(tokens, tokens).tril()
    return (rows / rows.sum(dim=-1, keepdim=True))[None, None]


@pytest.mark.parametrize(
    ("role", "places", "score"),
    [
        ("previous_token", (0, 0, 1, 2, 3, 4), 1.0),
        ("first_token", (0, 0, 0, 0, 0, 0), 1.0),
        ("duplicate_token", (0, 1, 2, 0, 1, 2), 1.0),
        ("induction", (0, 1, 2, 1, 2, 3), 1.0),
        ("induction", (0, 1, 2, 1, 2, 0), 2 / 3),
        ("duplicate_token", (0, 1, 2, 1, 2, 3), 0.0),
    ],
)
def test_a_share_is_a_mean_over_the_queries_that_see_a_target(
    role: str, places: tuple[int, ...], score: float
) -> None:
    """A uniform head stands beside it, since a query sees what any head of the layer attends to."""
    both = torch.cat([looking(*places), uniform(6)], dim=1)
    on = self_attention_sums(both, targets_of(IDS)).on[role]
    found, beside = on.score or []
    assert (found, beside) == pytest.approx((score, on.baseline))


def test_uniform_attention_scores_what_is_said_of_it() -> None:
    on = self_attention_sums(uniform(6), targets_of(IDS)).on
    assert on["previous_token"].baseline == pytest.approx(sum(1 / n for n in range(2, 7)) / 5)
    assert on["induction"].baseline == pytest.approx(sum(1 / n for n in (4, 5, 6)) / 3)


def test_a_window_hides_what_lies_before_it() -> None:
    """Of two tokens: nothing is repeated in it, and the first is seen by one query only."""
    band = torch.ones(6, 6).tril().triu(diagonal=-1)
    pattern = (band / band.sum(dim=-1, keepdim=True))[None, None]
    on = self_attention_sums(pattern, targets_of(IDS)).on
    assert on["induction"].score is None and on["induction"].baseline is None
    assert on["first_token"].queries == 1


def test_batches_add_up() -> None:
    patterns = torch.rand(4, 3, 6, 6).tril().softmax(dim=-1)
    ids = torch.stack([torch.randperm(3).repeat(2) for _ in range(4)])
    whole = self_attention_sums(patterns, targets_of(ids))
    parts = zip(patterns.split(2), ids.split(2), strict=True)
    halves = [self_attention_sums(pattern, targets_of(own)) for pattern, own in parts]
    added = halves[0] + halves[1]
    assert added.on["induction"].score == pytest.approx(whole.on["induction"].score)
    assert torch.allclose(added.rows.gram, whole.rows.gram)
    assert added.rows.rows == whole.rows.rows == 24


def test_distances_entropy_and_span() -> None:
    assert distance_profile(looking(0, 0, 1, 2))[0].tolist() == [1, 3, 0, 0]
    one, even = looking(0, 0, 0, 0), uniform(4)
    rows = self_attention_sums(torch.cat([one, even], dim=1), targets_of(IDS[:, :4])).rows
    assert rows.entropy.tolist() == pytest.approx([0, sum(math.log(n) for n in range(1, 5))])
    assert rows.span.tolist() == pytest.approx([4, 10])


def test_query_heads_of_a_group_are_compared() -> None:
    """Two pairs: one of equal patterns, one that share half of their attention."""
    half = (looking(0, 0, 1, 2) + looking(0, 0, 0, 0)) / 2
    pattern = torch.cat([uniform(4), uniform(4), looking(0, 0, 0, 0), half], dim=1)
    sums = self_attention_sums(pattern, targets_of(IDS[:, :4]))
    mixer = Attention(
        hidden_size=8, num_attention_heads=4, num_key_value_heads=2, head_dim=2, v_head_dim=2
    )
    found = measured_attention(
        DecoderAttention(layer=0, mixer=mixer), "here", sums, None, Thresholds()
    )
    same, other = (each.similarity for each in found.key_value_heads)
    cosine = torch.nn.functional.cosine_similarity(pattern[0, 2].flatten(), half.flatten(), dim=0)
    assert (same, other) == (pytest.approx(1), pytest.approx(cosine.item()))


def test_alignment_is_monotone_where_attention_moves_on() -> None:
    still = torch.full((5, 5), 0.2)
    moves = torch.stack([torch.eye(5), torch.eye(5).flip(0), still])
    assert monotony(moves).tolist() == pytest.approx([1, -1, 0])
    twice = torch.cat([torch.eye(5)[:1], torch.eye(5), torch.eye(5)])[None, None]
    sums = cross_attention_sums(twice, (1, 5))
    assert sums.alignment is not None
    assert (sums.alignment.tau.tolist(), sums.alignment.copies) == ([2.0], 2)


def test_a_role_takes_an_excess_over_uniform() -> None:
    assert excess(0.5, 0.5) == 0 and excess(1.0, 0.5) == 1 and excess(0.75, 0.5) == 0.5
    scores = {"induction": 0.61, "previous_token": 0.39, "first_token": None}
    even = {"induction": 0.5, "previous_token": 0.0}
    assert roles_of(scores, even, Thresholds()) == ("induction",)
    assert roles_of(scores, even, Thresholds(induction=0.3, previous_token=0.3)) == (
        "previous_token",
    )


def test_thresholds_are_read() -> None:
    assert parse_thresholds(None) == Thresholds()
    assert parse_thresholds("induction=0.3, copying=1") == Thresholds(induction=0.3, copying=1)
    for wrong in ("induction", "induction=0", "induction=nan", "nothing=1"):
        with pytest.raises(HeadcountError, match=r"--thresholds"):
            parse_thresholds(wrong)


def test_sequences_repeat_tokens_that_differ() -> None:
    made = repeated_tokens(torch.arange(10, 30), tokens=8, sequences=3, start=1, seed=5)
    assert made.ids.shape == (3, 17) and made.ids[:, 0].tolist() == [1, 1, 1]
    for row in made.ids[:, 1:].tolist():
        assert row[:8] == row[8:] and len(set(row)) == 8 and set(row) <= set(range(10, 30))
    again = repeated_tokens(torch.arange(10, 30), tokens=8, sequences=3, start=1, seed=5)
    assert torch.equal(made.ids, again.ids)


@pytest.mark.parametrize(
    ("tokens", "usable", "positions", "expected"),
    [(None, 1000, None, 64), (None, 20, None, 20), (None, 1000, 41, 20), (16, 1000, 33, 16)],
)
def test_tokens_fit_vocabulary_and_positions(
    tokens: int | None, usable: int, positions: int | None, expected: int
) -> None:
    found = resolve_tokens(tokens, usable=usable, positions=positions, start=1, name="model")
    assert found == expected
