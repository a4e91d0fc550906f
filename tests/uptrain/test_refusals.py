"""What `uptrain` refuses, before it reads any weight, and how it ends when a loss is not finite."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from .conftest import MakePair, Pair, Uptrain

pytestmark = pytest.mark.needs_convert
FSDP2 = {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2"}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"vocab_size": 330}, "330"),
        ({"hidden_size": 64, "head_dim": 16}, "hidden_size 32"),
        ({"num_hidden_layers": 3}, "num_hidden_layers 2"),
    ],
)
def test_a_teacher_of_another_shape_is_refused(
    make_pair: MakePair, pair: Pair, uptrain: Uptrain, config: dict[str, Any], expected: str
) -> None:
    other = make_pair("llama", num_key_value_heads=4, **config)
    result = uptrain(Pair(other.original, pair.converted))
    assert (result.exit_code, result.stdout) == (2, "")
    assert expected in result.stderr


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--sequence-length", "64"), "48 positions"),
        (("--batch-size", "5", "--gradient-accumulation", "2"), "multiple of 2"),
        (("--batch-size", "500"), "smaller --batch-size"),
        (("--tokenizer", "./nowhere"), "nowhere"),
        (("--torch-device", "tpu"), "tpu"),
        (("--phase-one", "1.5"), "--phase-one"),
        (("--phase-one", "nan"), "nan is not a finite number"),
        (("--learning-rate", "inf"), "inf is not a finite number"),
        (("--temperature", "nan"), "nan is not a finite number"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    pair: Pair, uptrain: Uptrain, tmp_path: Path, options: tuple[str, ...], expected: str
) -> None:
    result = uptrain(pair, *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert expected in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_text_that_is_too_short_is_refused(pair: Pair, uptrain: Uptrain, tmp_path: Path) -> None:
    text = tmp_path / "short.txt"
    text.write_text("A few words.")
    result = uptrain(pair, text=text)
    assert result.exit_code == 2
    assert "give more text" in result.stderr


def test_a_model_without_tokenizer_is_refused(pair: Pair, uptrain: Uptrain, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(pair.converted, bare, ignore=shutil.ignore_patterns("tokenizer*"))
    result = uptrain(Pair(pair.original, bare))
    assert result.exit_code == 2
    assert "pass --tokenizer FOLDER" in result.stderr


@pytest.mark.parametrize("where", ["converted", "original", "converted/inside"])
def test_the_models_are_no_target(pair: Pair, uptrain: Uptrain, tmp_path: Path, where: str) -> None:
    folders = {"converted": pair.converted, "original": pair.original}
    target = {**folders, "converted/inside": pair.converted / "inside"}[where]
    before = sorted(path.name for path in pair.converted.parent.rglob("*"))
    result = uptrain(pair, "--output-dir", str(target))
    assert result.exit_code == 2
    assert sorted(path.name for path in pair.converted.parent.rglob("*")) == before


def test_a_loss_that_is_not_finite_ends_the_run(
    pair: Pair, uptrain: Uptrain, tmp_path: Path
) -> None:
    result = uptrain(pair, "--learning-rate", "1e30")
    assert result.exit_code == 1
    assert "try a smaller --learning-rate (it was 1e+30)" in result.stderr
    assert result.stdout == ""
    assert not (tmp_path / "out").exists()


def test_shards_of_one_process_are_refused(pair: Pair, uptrain: Uptrain, tmp_path: Path) -> None:
    result = uptrain(pair, "--shard")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "this is one" in result.stderr and "torchrun" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "1"}, "--fsdp_version 2"),
        (
            {**FSDP2, "FSDP_OFFLOAD_PARAMS": "true"},
            "--fsdp_offload_params: not done by uptrain: weights stay on their devices",
        ),
        ({**FSDP2, "FSDP_ACTIVATION_CHECKPOINTING": "true"}, "--fsdp_activation_checkpointing"),
        ({"ACCELERATE_USE_DEEPSPEED": "true"}, "--use_deepspeed"),
        ({"ACCELERATE_USE_MEGATRON_LM": "true"}, "--use_megatron_lm"),
        ({"ACCELERATE_USE_PARALLELISM_CONFIG": "true"}, "--use_parallelism_config"),
        ({"ACCELERATE_DYNAMO_BACKEND": "INDUCTOR"}, "--dynamo_backend"),
        ({"ACCELERATE_MIXED_PRECISION": "fp16"}, "--mixed_precision fp16"),
    ],
)
def test_what_a_launcher_asks_for_in_vain_is_refused(
    pair: Pair,
    uptrain: Uptrain,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    expected: str,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    result = uptrain(pair)
    assert (result.exit_code, result.stdout) == (2, "")
    assert expected in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_was_no_conversion_may_be_healed_too(
    pair: Pair, uptrain: Uptrain, tmp_path: Path
) -> None:
    other = tmp_path / "own"
    shutil.copytree(pair.converted, other, ignore=shutil.ignore_patterns("conversion.json"))
    result = uptrain(Pair(pair.original, other))
    assert result.exit_code == 0, result.stderr
    record = json.loads((tmp_path / "out" / "conversion.json").read_text())
    assert {"uptraining", "manifest", "job"} <= record.keys()
