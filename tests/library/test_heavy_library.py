"""The functions that run models: `headcount.convert`, `sweep`, `verify`, `evaluate`, `heads` and
`uptrain`, on a tiny model. Their documents are what the schemas say."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import headcount
from headcount.cli import main
from headcount.library.schemas import schema_of

jsonschema = pytest.importorskip("jsonschema", reason="is in the extra test")
pytestmark = pytest.mark.needs_convert
MakeFolder = Callable[..., Path]
SaveModel = Callable[..., Path]
SHORT = ("--max-tokens", "64")


def is_whole(result: headcount.Result, command: str) -> bool:
    """Whether the document is as its schema says, and what there is for people shows it."""
    jsonschema.Draft202012Validator(schema_of(command)).validate(result.to_dict())
    assert result.schema_version == 1 and len(repr(result)) < 2000
    return "<table>" in result._repr_html_() and result.report.title in str(result)


def printed(*arguments: str) -> str:
    done = CliRunner().invoke(main, [*arguments, "--format", "json"])
    assert done.exit_code == 0, done.stderr
    return done.stdout


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


def test_a_conversion_is_checked(grouped: MakeFolder, repeated: MakeFolder, tmp_path: Path) -> None:
    """Equal heads are merged without a loss: the check says so, and how a cache has shrunk."""
    source = repeated(grouped("llama", 12, 4), 3)
    done = headcount.convert(source, tmp_path / "out", num_key_value_heads=4, check=True)
    assert is_whole(done, "convert") and "Check: passed" in str(done)
    assert done.check is not None and done.check.lossless and done.check.problems == ()
    assert done.check.predicted_cache_bytes == done.check.measured_cache_bytes
    assert done.to_dict().keys() - json.loads((tmp_path / "out/conversion.json").read_text()) == {
        "check"
    }
    arguments = ("convert", str(source), str(tmp_path / "out"), "--kv-heads", "4", "--check")
    assert done.to_json() == printed(*arguments)
    again = headcount.convert(source, tmp_path / "out", num_key_value_heads=4)
    assert again.check is None and is_whole(again, "convert")


def test_a_conversion_is_verified(grouped: MakeFolder, tmp_path: Path) -> None:
    source, target = grouped("llama", 12, 4), tmp_path / "out"
    headcount.convert(source, target, num_key_value_heads=2)
    found = headcount.verify(target, source)
    assert found.holds and is_whole(found, "convert") and found.checked["tensors"] > 0
    assert found.to_json() == printed("convert", str(source), "--verify", str(target))
    assert headcount.verify(target, sample=1).checked["tensors"] == 1
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, "rope_theta": 7.0}))
    changed = headcount.verify(target)
    assert not changed.holds and changed.differences[0].where == "config.json"
    with pytest.raises(headcount.HeadcountError, match="at once"):
        headcount.verify(target, target)
    with pytest.raises(headcount.HeadcountError, match="sample"):
        headcount.verify(target, sample=0)


def test_a_sweep_measures_and_keeps_one(save_model: SaveModel, tmp_path: Path) -> None:
    source, target = save_model("llama", num_key_value_heads=4), tmp_path / "out"
    found = headcount.sweep(source, [2, 1], methods=["mean", "first"], max_tokens=64)
    assert is_whole(found, "convert") and found.chosen is None and found.tokens == 64
    named = [(one.num_key_value_heads, one.method) for one in found.trials]
    assert named == [(2, "mean"), (2, "first"), (1, "mean"), (1, "first")]
    assert found.original.delta_loss == 0 and found.original.num_key_value_heads == 4
    two, one = found.trials[0], found.trials[2]
    assert found.original.cache_bytes == 2 * two.cache_bytes == 4 * one.cache_bytes
    arguments = ("--sweep", "2,1", "--sweep-methods", "mean,first", *SHORT)
    assert found.to_json() == printed("convert", str(source), *arguments)
    kept = headcount.sweep(source, "2,1", target, max_delta_loss=99, max_tokens=64, by_layer=True)
    assert kept.target == target and kept.chosen is not None
    assert (
        kept.chosen.num_key_value_heads
        == 1
        == headcount.audit(target).layers[0].mixers[0].num_key_value_heads
    )
    assert [layer.index for layer in kept.layers] == [0, 1]
    with pytest.raises(headcount.HeadcountError, match="exists"):
        headcount.sweep(source, "2", target, max_delta_loss=99, max_tokens=64)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"counts": "2,1", "max_delta_loss": 1.0}, "give both"),
        ({"counts": "many"}, "many"),
        ({"counts": []}, "counts"),
        ({"counts": [2], "methods": "mean", "method": "first"}, "sweep-methods"),
        ({"counts": [2], "by_layer": True, "pruned_heads": "1/4"}, "by-layer"),
        ({"counts": [2], "max_tokens": "lots"}, "max_tokens"),
        ({"counts": [2], "max_delta_loss": "1"}, "max_delta_loss"),
    ],
)
def test_a_sweep_without_sense_is_refused(
    grouped: MakeFolder, arguments: dict[str, object], words: str
) -> None:
    with pytest.raises(headcount.HeadcountError, match=words):
        headcount.sweep(grouped("llama", 12, 4), **arguments)  # type: ignore[arg-type]


def test_an_uptraining_says_what_it_did(save_model: SaveModel, tmp_path: Path) -> None:
    source, target, text = save_model("llama"), tmp_path / "out", tmp_path / "prose.txt"
    text.write_text("a b c d e f g h i j k l m n o p q r s t\n" * 200, encoding="utf-8")
    headcount.convert(source, target, num_key_value_heads=1)
    short = {"steps": 4, "batch_size": 2, "sequence_length": 16, "warmup": 1, "held_out": 200}
    found = headcount.uptrain(target, teacher=source, text=text, device="cpu", **short)  # type: ignore[arg-type]
    assert found is not None and is_whole(found, "uptrain") and not found.done_before
    assert found.target == tmp_path / "out-uptrained" and found.target.is_dir()
    assert found.steps == 4 and found.tokens == 4 * 2 * 16
    assert found.before.loss - found.before.teacher_loss == pytest.approx(found.before.delta_loss)
    again = headcount.uptrain(target, teacher=source, text=[text], device="cpu", **short)  # type: ignore[arg-type]
    assert again is not None and again.done_before and again.seconds is None
    assert again.after == found.after


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"steps": 0}, "steps"),
        ({"phase_one": 1.5}, "phase_one"),
        ({"learning_rate": 0}, "learning_rate"),
        ({"decay": "never"}, "decay"),
        ({"text": []}, "text"),
        ({"text": "./nowhere.txt"}, "nowhere.txt"),
        ({"device": ""}, "device"),
    ],
)
def test_an_uptraining_without_sense_is_refused(
    save_model: SaveModel, tmp_path: Path, arguments: dict[str, object], words: str
) -> None:
    source = save_model("llama")
    given = {"teacher": source, "text": source / "config.json", "output_dir": tmp_path / "out"}
    with pytest.raises(headcount.HeadcountError, match=words):
        headcount.uptrain(source, **{**given, **arguments})  # type: ignore[arg-type]


def test_what_can_be_converted_is_listed() -> None:
    found = headcount.convertibles()
    assert is_whole(found, "convert") and found.to_json() == printed("convert", "--families")
    assert {one.model_type: one.home for one in found.families}["llama"] in ("native", "custom")
    assert "llama" in found.latents


def test_nothing_shows_a_bar_that_was_not_asked_for(
    save_model: SaveModel, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also in a terminal."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    folder, options = save_model("llama"), {"max_tokens": 64, "roles": False, "speed": False}
    capsys.readouterr()  # of what made the model
    headcount.evaluate(folder, behaviour="none", **options)  # type: ignore[arg-type]
    assert capsys.readouterr().err == ""
    headcount.evaluate(folder, behaviour="none", progress=True, **options)  # type: ignore[arg-type]
    assert "scoring" in capsys.readouterr().err
