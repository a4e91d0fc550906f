"""`evaluate` and `convert --evaluate` as a user meets them."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from headcount.cli import main

pytestmark = pytest.mark.needs_convert
SaveModel = Callable[..., Path]
SHORT = ["--max-tokens", "64", "--no-speed"]


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
    conversion, evaluation = json.loads(result.stdout)
    assert conversion["method"] == "mean"
    assert evaluation["kl_divergence"] > 0
    ratio = evaluation["cache_bytes"]["against"]["measured"] / evaluation["cache_bytes"]["measured"]
    assert ratio == json.loads((source / "config.json").read_text())["num_key_value_heads"]


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
