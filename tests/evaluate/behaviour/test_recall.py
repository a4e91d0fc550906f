"""Planted pairs: where they stand, and who finds them again."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from headcount.evaluate.behaviour.recall import (
    PlantedRows,
    plant_pairs,
    recall,
    recall_distances,
    recalled_at,
)
from headcount.evaluate.behaviour.row_scores import RowScores
from planted_heads import CODES, POSITIONS, plant

pytestmark = pytest.mark.needs_convert


def _planted(length: int = 512, *, start: int | None = None, usable: int = 4000) -> PlantedRows:
    filler = torch.randint(5000, 6000, (3, length), generator=torch.Generator().manual_seed(1))
    return plant_pairs(filler, torch.arange(usable), start=start, seed=0)


@pytest.mark.parametrize(
    ("length", "distances"),
    [
        (1024, (8, 32, 128, 896)),
        (2048, (8, 32, 128, 512, 1792)),
        (48, (8, 40)),
        (16, (8,)),
        (10, ()),
    ],
)
def test_distances_reach_up_to_the_length(length: int, distances: tuple[int, ...]) -> None:
    assert recall_distances(length) == distances


@pytest.mark.parametrize("start", [None, 7])
def test_each_value_is_told_once_and_asked_once(start: int | None) -> None:
    planted = _planted(start=start)
    assert planted.ids.shape == (3, 512)
    for row in range(3):
        tokens = planted.ids[row].tolist()
        asked = [(far, place) for far, own, place in planted.asked if own == row]
        assert len(asked) == 4 * len(recall_distances(512)) == 16
        for far, place in asked:
            key, value = tokens[place - 1], tokens[place]
            assert key < 4000 and value < 4000 and key != value  # none of the filler's
            assert [at for at, one in enumerate(tokens) if one == key] == [
                place - 1 - far,
                place - 1,
            ]
            assert [at for at, one in enumerate(tokens) if one == value] == [place - far, place]
            assert place - 1 - far >= (1 if start is None else 2)
    if start is not None:
        assert planted.ids[:, 0].tolist() == [start] * 3


def test_what_cannot_be_told_apart_is_not_asked() -> None:
    assert len(_planted(usable=6).asked) == 3 * 3
    assert _planted(usable=1).asked == ()


def test_only_the_values_count() -> None:
    """Losses are the places in a row, so that the mean says which were taken."""
    planted = _planted()
    places = torch.arange(1, 512, dtype=torch.float64).expand(3, -1)
    for far in recall_distances(512):
        own = [place for one, _, place in planted.asked if one == far]
        hits = torch.zeros(3, 511, dtype=torch.bool)
        first = next((row, place) for one, row, place in planted.asked if one == far)
        hits[first[0], first[1] - 1] = True
        found = recalled_at(RowScores(losses=places, hits=hits), planted, far)
        assert found.loss == pytest.approx(sum(own) / len(own))
        assert found.accuracy == 1 / len(own)


def test_an_induction_head_recalls_at_every_distance_and_a_uniform_model_at_none(
    build: Callable[..., Any],
) -> None:
    """The model of two heads has 32 tokens; keys and values are some, the filler others."""
    model = plant("llama", alone=True).model
    with torch.no_grad():
        model.model.layers[1].self_attn.o_proj.weight.mul_(40)
    filler = torch.full((4, POSITIONS), 1)
    planted = plant_pairs(filler, torch.arange(2, CODES), start=None, seed=0)
    uniform = build("llama", vocab_size=CODES, max_position_embeddings=POSITIONS)
    with torch.no_grad():
        uniform.lm_head.weight.zero_()
    found = recall([model, uniform], planted)
    assert [one.distance for one in found] == [8, 63]
    for one in found:
        assert one.against is not None
        assert one.model.accuracy > 0.9
        assert one.against.accuracy == 0
        assert one.against.loss == pytest.approx(math.log(CODES), abs=1e-5)
        assert one.pairs == sum(far == one.distance for far, _, _ in planted.asked)
