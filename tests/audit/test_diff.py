"""What two models differ in, and several side by side."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from checkpoints import LLAMA_CONFIG, llama_shapes, write_model
from gguf_files import write_gguf
from headcount.cli import main
from lowered_limits import Lower


def run(*arguments: str, given: str | None = None) -> Result:
    return CliRunner().invoke(main, list(arguments), input=given)


def made(folder: Path, **changes: Any) -> str:
    config = {**LLAMA_CONFIG, **changes}
    return str(write_model(folder, config, llama_shapes(config)))


def test_a_model_does_not_differ_from_itself(tmp_path: Path) -> None:
    model = made(tmp_path / "a")
    result = run("diff", model, model, "--format", "json", "--exit-code")
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert (report["same"], report["model"], report["layers"]) == (True, {}, [])
    assert next(iter(report)) == "schema_version"


def test_fewer_key_value_heads_are_seen_in_every_layer(tmp_path: Path) -> None:
    a = made(tmp_path / "a", num_key_value_heads=8)
    b = made(tmp_path / "b", num_key_value_heads=2)
    result = run("diff", a, b, "--format", "json", "--exit-code")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert [layer["index"] for layer in report["layers"]] == [0, 1, 2]
    fields = report["layers"][1]["fields"]
    assert fields["num_key_value_heads"] == {"a": 8, "b": 2}
    assert fields["heads"] == {"a": "MHA", "b": "GQA"}
    assert fields["parameters"] == {"a": 4 * 32 * 32, "b": 2 * 32 * 32 + 2 * 32 * 8}
    assert fields["cache_bytes"] == {"a": 64 * 2 * 32 * 2, "b": 64 * 2 * 8 * 2}
    assert "head_dim" not in fields and "window" not in fields
    assert report["model"]["cache_bytes"] == {"a": 3 * 8192, "b": 3 * 2048}


def test_layers_that_only_one_has_are_named(tmp_path: Path) -> None:
    a, b = made(tmp_path / "a"), made(tmp_path / "b", num_hidden_layers=2)
    report = json.loads(run("diff", a, b, "--format", "json").stdout)
    assert report["layers"] == [
        {"stack": "decoder", "index": 2, "fields": {"layer": {"a": "yes", "b": None}}}
    ]


def test_the_table_collapses_equal_layers() -> None:
    result = run("diff", "llama-2-7b", "llama-3-8b", "--context", "4k")
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["0-31", "num_key_value_heads", "32", "8", "0.25x"] in lines
    assert "hold 4,096 tokens" in result.stdout


def test_what_does_not_differ_is_a_detail() -> None:
    words = ("diff", "llama-2-7b", "llama-3-8b")
    brief, whole = run(*words).stdout, run(*words, "--details").stdout
    assert "vocab_size" in brief and "hidden_size" not in brief
    assert "--details also shows: the same of both." in brief
    same = whole.partition("The same of both")[2].partition("Layers that differ")[0]
    assert ["hidden_size", "4,096", "4,096"] in [line.split() for line in same.splitlines()]
    assert "vocab_size" not in same
    many = run("diff", "gemma-3-27b-it", "qwen3-8b").stdout
    assert "more rows (--details)" in many.partition("Layers that differ")[2]


def test_both_caches_hold_as_many_tokens(tmp_path: Path) -> None:
    a, b = made(tmp_path / "a"), made(tmp_path / "b", max_position_embeddings=9999)
    report = json.loads(run("diff", a, b, "--format", "json").stdout)
    assert report["request"]["context"] == 64
    assert (report["layers"], list(report["model"])) == ([], ["max_position_embeddings"])


def test_a_gguf_file_is_held_against_a_folder(tmp_path: Path) -> None:
    a = made(tmp_path / "a", hidden_size=256)
    b = write_gguf(tmp_path / "b.gguf")
    fields = json.loads(run("diff", a, str(b), "--format", "json").stdout)["model"]
    assert fields["dtype"]["a"] == "bfloat16" and "Q4_K" in fields["dtype"]["b"]
    assert "layers" not in fields and "cache_bytes" not in fields


def test_csv_has_raw_values(tmp_path: Path) -> None:
    a, b = made(tmp_path / "a", num_key_value_heads=8), made(tmp_path / "b")
    rows = list(csv.DictReader(io.StringIO(run("diff", a, b, "--format", "csv").stdout)))
    kv = [row for row in rows if row["field"] == "num_key_value_heads"]
    assert [(row["layer"], row["a"], row["b"]) for row in kv] == [
        (str(i), "8", "2") for i in range(3)
    ]


def test_two_mixers_in_a_layer_are_told_apart() -> None:
    report = json.loads(run("diff", "t5-small", "t5-base", "--format", "json").stdout)
    decoder = next(la for la in report["layers"] if la["stack"] == "decoder")
    assert {"num_attention_heads", "2.num_attention_heads"} <= decoder["fields"].keys()


def test_several_models_end_in_a_comparison() -> None:
    result = run("audit", "llama-3-8b", "gpt2", "--context", "1k")
    table = result.stdout.split("Comparison of 2 models at 1,024 tokens")[1]
    rows = [line.split() for line in table.splitlines() if "/" in line]
    first, second = (" ".join(row) for row in rows[-2:])
    assert first.startswith("meta-llama/Meta-Llama-3-8B 8.03 B 32 32 8 GQA 128 1.34 B")
    assert first.endswith("1,024 128.00 MiB 1.00x none")
    assert second.startswith("openai-community/gpt2 124.44 M 12 12 12 MHA 64")
    assert second.endswith("1,024 36.00 MiB 0.28x 1 note")
    markdown = run("audit", "llama-3-8b", "gpt2", "--format", "markdown").stdout
    assert "### Comparison" in markdown
    assert "Comparison" not in run("audit", "gpt2").stdout


def test_programs_get_no_comparison() -> None:
    found = json.loads(run("audit", "llama-3-8b", "gpt2", "--format", "json").stdout)
    assert isinstance(found, list) and len(found) == 2
    assert "Comparison" not in run("audit", "llama-3-8b", "gpt2", "--format", "csv").stdout


def test_a_model_that_failed_has_its_row() -> None:
    result = run("audit", "gpt2", "no-such-model")
    assert result.exit_code == 2
    assert "'no-such-model' is no model of the catalogue" in result.stdout
    (row,) = (line for line in result.stdout.splitlines() if line.startswith("no-such-model "))
    assert row.split() == ["no-such-model", "cannot", "be", "audited"]


def test_models_are_compared_at_a_context_that_each_has() -> None:
    rows = run("audit", "llama-3.1-8b", "gpt2", "--wide").stdout
    assert rows.startswith("Comparison of 2 models at 1,024 tokens")
    assert rows.count("1,024 ") == 2 + 1 and "131,072" not in rows


def test_mixed_head_counts_are_a_range() -> None:
    table = run("audit", "gemma-4-e2b", "gpt2").stdout.split("Comparison of")[1]
    assert any("256-512" in line for line in table.splitlines())


def test_a_config_on_standard_input() -> None:
    result = run("audit", "-", "--format", "json", given=json.dumps(LLAMA_CONFIG))
    report = json.loads(result.stdout)
    assert report["model"]["id"] == "-" and report["model"]["source"] == "config"
    assert report["layers"][0]["mixers"][0]["num_key_value_heads"] == 2


@pytest.mark.parametrize(
    ("given", "message"),
    [("", "is empty"), ("[]", "standard input: a JSON object"), ("{", "standard input: not JSON")],
)
def test_standard_input_without_a_config(given: str, message: str) -> None:
    result = run("audit", "-", given=given)
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_more_than_a_config_is_not_read(lower: Lower) -> None:
    lower("JSON_BYTES", 9)
    assert "no more than 9 bytes" in run("audit", "-", given="{" + " " * 20 + "}").stderr


@pytest.mark.parametrize(
    ("a", "b", "answer"),
    [
        ("gpt2", "llama-3-8b", "12 layers against 32, all 12 that both have differ"),
        ("t5-small", "gpt2", "12 layers against 12, all 6 that both have differ"),
        ("bert-base-uncased", "gpt2", "12 layers against 12, of another stack"),
        ("llama-3-8b", "llama-2-7b", "all 32 layers differ"),
        ("llama-3-8b", "llama-3.1-8b", "the layers are the same"),
    ],
)
def test_the_answer_counts_the_layers_of_each(a: str, b: str, answer: str) -> None:
    """A stack is a decoder's or an encoder's layers: T5 has 6 of each."""
    lines = run("diff", a, b).stdout.splitlines()
    assert lines[0].endswith(f": {answer}") and lines[-1] == lines[0]
    back = run("diff", b, a).stdout.splitlines()[-1]
    assert ("all 12 that both have differ" in back) == ("12 that both" in answer)
