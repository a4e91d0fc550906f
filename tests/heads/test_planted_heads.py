"""Heads that were put in by hand are found, and no others."""

from pathlib import Path

import pytest

from headcount.heads.atlas import Atlas
from headcount.heads.atlas_document import atlas_document
from headcount.heads.atlas_run import make_atlas
from headcount.heads.heads_request import HeadsRequest
from planted_heads import FAMILIES, Planted, plant, plant_aligned

pytestmark = pytest.mark.needs_convert


def atlas_of(planted: Planted, folder: Path) -> Atlas:
    planted.model.save_pretrained(folder)
    request = HeadsRequest(model=str(folder), tokens=28, sequences=4)
    return make_atlas(request, folder, "planted")


def roles(atlas: Atlas) -> dict[str, list[list[int]]]:
    return {role: places for role, places in atlas_document(atlas)["roles"].items() if places}


@pytest.mark.parametrize("name", FAMILIES)
def test_planted_heads_are_found_and_no_others(name: str, tmp_path: Path) -> None:
    planted = plant(name)
    assert roles(atlas_of(planted, tmp_path)) == planted.roles


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_a_model_of_two_heads_is_these_two_heads(name: str, tmp_path: Path) -> None:
    """Attention only, all else zero: the other heads attend uniformly and write nothing."""
    planted = plant(name, alone=True)
    atlas = atlas_of(planted, tmp_path)
    assert roles(atlas) == planted.roles == {"previous_token": [[0, 0]], "induction": [[1, 3]]}
    found = {(one.attention.layer, head.head): head for one, head in atlas.heads()}
    assert found[1, 3].copies and found[1, 3].scores.copying == pytest.approx(1, abs=0.05)
    assert found[1, 3].scores.induction == pytest.approx(1, abs=0.05)
    assert found[0, 0].scores.previous_token == pytest.approx(1, abs=0.05)


def test_a_cross_attention_that_follows_the_tokens_is_found(tmp_path: Path) -> None:
    planted = plant_aligned()
    assert roles(atlas_of(planted, tmp_path)) == planted.roles
