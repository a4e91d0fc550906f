"""`headcount.convert`, `evaluate` and `heads` on a tiny model."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import headcount

pytestmark = pytest.mark.needs_convert
MakeFolder = Callable[..., Path]
SaveModel = Callable[..., Path]


def test_a_conversion_is_planned_made_and_found_done(grouped: MakeFolder, tmp_path: Path) -> None:
    source, target = grouped("llama", 12, 4), tmp_path / "out"
    planned = headcount.convert(source, target, num_key_value_heads=2, dry_run=True)
    assert planned.target is None and planned.lossless is None and not target.exists()
    done = headcount.convert(source, target, num_key_value_heads=2)
    assert done.target == target and not done.done_before and done.lossless is False
    assert [(la.num_key_value_heads_before, la.num_key_value_heads) for la in done.layers] == [
        (4, 2)
    ] * 2
    assert all(layer.key_error and layer.key_error > 0 for layer in done.layers)
    assert done.to_dict() == json.loads((target / "conversion.json").read_text())
    assert done.bytes == planned.bytes < done.source_bytes
    assert headcount.convert(source, target, num_key_value_heads="2").done_before
    assert headcount.audit(target).layers[0].mixers[0].num_key_value_heads == 2


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"num_key_value_heads": 5},
        {"num_key_value_heads": True},
        {"num_key_value_heads": 2, "quality": "superb"},
        {"num_key_value_heads": 2, "method": "magic"},
        {"num_key_value_heads": 2, "calibration_tokens": "lots"},
        {"num_key_value_heads": 2, "latent": "1/4"},
    ],
)
def test_what_cannot_be_converted_is_refused(
    grouped: MakeFolder, tmp_path: Path, arguments: dict[str, object]
) -> None:
    with pytest.raises(headcount.HeadcountError):
        headcount.convert(grouped("llama", 12, 4), tmp_path / "out", **arguments)  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


def test_an_evaluation_compares(save_model: SaveModel) -> None:
    folder = save_model("llama")
    result = headcount.evaluate(
        folder, against=folder, max_tokens=64, behaviour="none", roles=False, speed=False
    )
    assert result.tokens == 64 and result.delta_loss == 0 and result.top1_agreement == 1
    assert result.predicted_cache_bytes == result.measured_cache_bytes
    assert result.to_dict()["model"]["loss"] == result.loss > 0
    with pytest.raises(headcount.HeadcountError, match="behaviour"):
        headcount.evaluate(folder, behaviour="rude")  # type: ignore[arg-type]


def test_heads_have_roles_and_worth(save_model: SaveModel) -> None:
    folder = save_model("llama")
    atlas = headcount.heads(folder, tokens=16, sequences=2)
    assert atlas.model_type == "llama" and "induction" in atlas.roles
    assert atlas.to_dict()["roles"].keys() == atlas.roles.keys()
    worth = headcount.heads(folder, importance=True, max_tokens=64)
    assert not worth.roles and worth.to_dict()["layers"]
    kept = headcount.heads(folder, against=folder, tokens=16, sequences=2)
    assert not kept.roles and kept.to_dict()["against"]
    with pytest.raises(headcount.HeadcountError, match="importance"):
        headcount.heads(folder, exact=True)
