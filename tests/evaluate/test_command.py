"""`evaluate` and `convert --evaluate` as a user meets them."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from safetensors.torch import load_file, save_file

from headcount.cli import main

pytestmark = pytest.mark.needs_convert
SaveModel = Callable[..., Path]
SHORT = ["--max-tokens", "64", "--no-speed", "--behaviour", "none", "--no-roles"]


def test_evaluate_reads_as_a_report_and_as_json(save_model: SaveModel) -> None:
    model = str(save_model("llama"))
    text = CliRunner().invoke(main, ["evaluate", model, *SHORT])
    assert text.exit_code == 0, text.stderr
    assert "Perplexity" in text.stdout
    document = json.loads(
        CliRunner().invoke(main, ["evaluate", model, *SHORT, "--format", "json"]).stdout
    )
    assert document["model"]["tokens"] == 64
    assert document["against"] is None
    assert document["cache_bytes"]["predicted"] == document["cache_bytes"]["measured"] > 0


def test_a_perplexity_beyond_any_number_is_said_and_fails(save_model: SaveModel) -> None:
    """A mean loss of thousands of nats is finite, and still nothing but damage."""
    folder = save_model("llama")
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"] *= 1e5
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    result = CliRunner().invoke(main, ["evaluate", str(folder), *SHORT])
    assert result.exit_code == 1
    assert re.search(r"Perplexity +beyond any number", result.stdout)
    assert re.search(r"a loss of [\d,]{5,} nats a token.*weights are damaged", result.stderr)


@pytest.mark.parametrize("tokens", ["plain", "bos"])
def test_the_report_says_how_windows_begin(save_model: SaveModel, tokens: str) -> None:
    folder = save_model("llama", tokens=tokens)
    text = CliRunner().invoke(main, ["evaluate", str(folder), *SHORT, "--details"]).stdout
    expected = "BOS, as the tokenizer has it" if tokens == "bos" else "the tokenizer adds no BOS"
    assert re.search(f"Each window begins with.*{expected}", text)


def test_convert_evaluates_right_after(save_model: SaveModel, tmp_path: Path) -> None:
    source, target = save_model("llama"), tmp_path / "out"
    result = CliRunner().invoke(
        main,
        [
            *("convert", str(source), str(target), "--kv-heads", "1"),
            *("--evaluate", "--format", "json", *SHORT),
        ],
    )
    assert result.exit_code == 0, result.stderr
    conversion = json.loads(result.stdout)
    evaluation = conversion["evaluation"]
    assert conversion["method"] == "mean"
    assert evaluation["kl_divergence"] > 0
    ratio = evaluation["cache_bytes"]["against"]["measured"] / evaluation["cache_bytes"]["measured"]
    assert ratio == json.loads((source / "config.json").read_text())["num_key_value_heads"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--text", "./nowhere.txt"], "nowhere.txt"),
        (["--tokenizer", "./nowhere"], "nowhere"),
        (["--window", "1k"], "1,024"),
        (["--torch-device", "tpu"], "tpu"),
    ],
)
def test_an_evaluation_that_cannot_be_made_stops_the_conversion(
    save_model: SaveModel, tmp_path: Path, options: list[str], expected: str
) -> None:
    source, target = save_model("llama"), tmp_path / "out"
    command = ["convert", str(source), str(target), "--kv-heads", "1", "--evaluate", *options]
    result = CliRunner().invoke(main, command)
    assert (result.exit_code, result.stdout) == (2, "")
    assert expected in result.stderr
    assert not target.exists()


def test_an_evaluation_that_fails_leaves_the_report_of_the_conversion(
    save_model: SaveModel, tmp_path: Path
) -> None:
    """A weight that is only copied makes the loss NaN: the conversion is good, exit code 1."""
    source, target = save_model("llama"), tmp_path / "out"
    tensors = load_file(source / "model.safetensors")
    tensors["model.norm.weight"][0] = float("nan")
    save_file(tensors, source / "model.safetensors", metadata={"format": "pt"})
    command = ["convert", str(source), str(target), "--kv-heads", "1", "--evaluate"]
    result = CliRunner().invoke(main, [*command, *SHORT, "--format", "json"])
    assert (result.exit_code, "loss" in result.stderr) == (1, True)
    assert json.loads(result.stdout) == json.loads((target / "conversion.json").read_text())


def test_a_report_never_goes_into_a_model_folder(save_model: SaveModel, tmp_path: Path) -> None:
    model, original = save_model("llama"), save_model("llama", folder="original")
    for folder in (model, original):
        report = folder / "config.json"
        before = report.read_bytes()
        command = ["evaluate", str(model), "--against", str(original), *SHORT, "-o", str(report)]
        result = CliRunner().invoke(main, command)
        assert (result.exit_code, str(report) in result.stderr) == (2, True)
        assert report.read_bytes() == before


def test_a_tensor_of_another_shape_is_named(save_model: SaveModel) -> None:
    folder = save_model("llama")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "intermediate_size": 40}))
    result = CliRunner().invoke(main, ["evaluate", str(folder), *SHORT])
    assert result.exit_code == 2
    assert "'model.layers.0.mlp.down_proj.weight' is [32, 48]" in result.stderr
    assert "[32, 40]" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["./nowhere"], "nowhere"),
        (["{model}", "--text", "./nowhere.txt"], "nowhere.txt"),
        (["{model}", "--dtype", "float17"], "float17"),
        (["{model}", "--stride", "4k", "--window", "32"], "stride"),
        (["{model}", "--against", "./nowhere"], "nowhere"),
    ],
)
def test_a_mistake_gets_a_message(
    save_model: SaveModel, arguments: list[str], expected: str
) -> None:
    model = str(save_model("llama"))
    result = CliRunner().invoke(main, ["evaluate", *(a.format(model=model) for a in arguments)])
    assert (result.exit_code, result.stdout) == (2, "")
    assert expected in result.stderr
    assert "Traceback" not in result.stderr
