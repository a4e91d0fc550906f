"""The commands as a user meets them: output, messages and exit codes."""

import csv
import io
import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

import headcount.commands
from checkpoints import LLAMA_CONFIG, llama_shapes, write_model
from headcount.cli import COMMANDS, main
from headcount.commands.audit import audit
from headcount.commands.convert import convert


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def document(*arguments: str) -> Any:
    result = run(*arguments, "--format", "json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model", LLAMA_CONFIG, llama_shapes())


def test_audit_llama_3_8b_as_people_read_it() -> None:
    lines = run("audit", "llama-3-8b", "--details").stdout.splitlines()
    assert lines[0] == (
        "meta-llama/Meta-Llama-3-8B (llama, 8.03 B parameters, bfloat16; from the catalogue)"
    )
    text = "\n".join(lines)
    for expected in (
        *(r"K/V heads +8 \(GQA\)", r"Group size +4\n", r"head_dim +128\n"),
        r"KV cache per token +131,072 B \(128\.00 KiB\)",
        r"Against MHA +4\.00x",
        r"0-31 +GQA +32 +8 +4 +128 +16,777,216 +4,194,304 +4,194,304 +16,777,216 +41,943,040",
    ):
        assert re.search(expected, text), expected


def test_the_short_command_is_the_long_one() -> None:
    short = CliRunner().invoke(audit, ["gpt2"])
    assert short.stdout == run("audit", "gpt2").stdout


def test_the_json_of_gpt2() -> None:
    report = document("audit", "gpt2", "--context", "1k", "--batch-size", "2")
    assert next(iter(report)) == "schema_version"
    assert report["model"]["source"] == "catalogue"
    assert report["request"] == {
        **{"context": 1024, "encoder_tokens": 0, "batch_size": 2},
        **{"kv_dtype": "bfloat16", "engine": "transformers"},
    }
    assert report["totals"]["parameters"] == 124_439_808
    assert report["totals"]["cache_bytes_per_token"] == 36_864
    assert report["totals"]["cache_bytes_of_first_token"] == 36_864
    assert report["totals"]["cache_bytes"] == 36_864 * 1024 * 2
    layer = report["layers"][11]
    assert layer["attention_parameters"] == 2_359_296 + 3_072
    (mixer,) = layer["mixers"]
    assert (mixer["heads"], mixer["num_attention_heads"], mixer["head_dim"]) == ("MHA", 12, 64)
    assert sum(mixer["parameters_by_part"].values()) == mixer["parameters"]


@pytest.mark.parametrize(
    "name", ["llama-3-8b", "whisper-base", "gemma-2-2b", "deepseek-v3", "t5-small"]
)
def test_totals_are_the_sums_of_the_layers(name: str) -> None:
    report = document("audit", name, "--kv-dtype", "fp8")
    totals, layers = report["totals"], report["layers"]
    assert totals["cache_bytes"] == sum(layer["cache_bytes"] for layer in layers)
    assert totals["attention_parameters"] == sum(la["attention_parameters"] for la in layers)
    for layer in layers:
        assert layer["cache_bytes"] == sum(m["cache_bytes"] for m in layer["mixers"])


def test_csv_has_one_raw_row_per_layer() -> None:
    rows = list(csv.DictReader(io.StringIO(run("audit", "llama-3-8b", "--format", "csv").stdout)))
    assert [row["index"] for row in rows] == [str(i) for i in range(32)]
    assert {row["parameters"] for row in rows} == {"41943040"}


def test_markdown_is_a_table_and_cannot_be_broken_by_a_name(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "a|b<i>", LLAMA_CONFIG, llama_shapes())
    text = run("audit", str(folder), "--format", "markdown").stdout
    assert "a\\|b\\<i\\>" in text.splitlines()[0]
    assert "| 0-2      | GQA" in text


def test_a_terminal_never_sees_control_characters(tmp_path: Path) -> None:
    shapes = {**llama_shapes(), "model.layers.0.self_attn.\x1b[31mevil.weight": (2, 2)}
    result = run("audit", str(write_model(tmp_path, LLAMA_CONFIG, shapes)))
    assert "H203" in result.stdout
    assert "\x1b" not in result.stdout


def test_several_models_are_a_list() -> None:
    assert [r["model"]["id"] for r in document("audit", "gpt2", "distilgpt2")] == [
        *("openai-community/gpt2", "distilbert/distilgpt2")
    ]


def test_one_of_several_that_fails_has_an_error_in_its_place() -> None:
    result = run("audit", "gpt2", "no-such-model", "--format", "json")
    assert result.exit_code == 2
    good, bad = json.loads(result.stdout)
    assert good["totals"]["parameters"] == 124_439_808
    assert "no-such-model" in bad["error"]


def test_explain_says_where_values_came_from() -> None:
    origins = document("audit", "gemma-3-4b", "--explain")["origins"]
    assert origins["num_key_value_heads"] == {
        "value": 4,
        "source": "class default of Gemma3TextConfig",
    }
    assert origins["hidden_size"]["source"].startswith("catalogue")
    assert "class default of Gemma3TextConfig" in run("audit", "gemma-3-4b", "--explain").stdout


def test_windows_show_what_the_first_and_what_a_further_token_costs() -> None:
    text = run("audit", "mistral-7b").stdout
    assert re.search(r"KV cache per token +131,072 B", text)
    assert re.search(r"and a further token +0 B \(once every window is full\)", text)
    totals = document("audit", "mistral-7b")["totals"]
    assert totals["cache_bytes_of_first_token"] == 2 * 32 * 8 * 128 * 2
    assert totals["cache_bytes_per_token"] == 0


def test_a_context_beyond_the_model_s_maximum_is_said_on_a_screen() -> None:
    """GPT-2 has 1,024 positions (Radford et al., 2019)."""
    said = "8,192 {} beyond the model's maximum of 1,024"
    assert said.format("is") in run("audit", "gpt2", "--context", "8k").stdout
    compared = run("audit", "llama-3-8b", "gpt2", "--context", "8k").stdout
    assert "8,192 tokens are beyond the maximum of openai-community/gpt2 (1,024)" in compared
    assert "further token" not in run("audit", "llama-3-8b").stdout
    assert re.search(r"KV cache per token +131,072 B", run("plan", "mistral-7b").stdout)


def test_a_plan_says_what_the_audit_found(tmp_path: Path) -> None:
    shapes = llama_shapes({**LLAMA_CONFIG, "num_key_value_heads": 4})
    folder = str(write_model(tmp_path, LLAMA_CONFIG, shapes))
    assert "H101 error" in run("plan", folder, "--device", "l4").stdout
    assert document("plan", folder, "--device", "l4")["findings"][0]["code"] == "H101"


def test_weights_that_are_cast_when_loaded_are_planned_as_loaded(tmp_path: Path) -> None:
    """Stored as float32, loaded as the config's bfloat16: half the bytes."""
    wide = write_model(tmp_path / "1", LLAMA_CONFIG, llama_shapes(), "F32")
    plain = write_model(tmp_path / "2", LLAMA_CONFIG, llama_shapes())
    weights = [document("plan", str(m))["memory"]["weights_bytes"] for m in (wide, plain)]
    assert weights[0] == weights[1] > 0


def test_a_folder_a_config_and_a_file(model: Path) -> None:
    folder = document("audit", str(model))
    assert folder["totals"]["parameters_source"] == "headers"
    assert document("audit", str(model / "model.safetensors"))["model"]["source"] == "file"
    config = document("audit", str(model / "config.json"))
    assert config["model"]["source"] == "config"
    assert config["layers"] == folder["layers"]


def test_findings_set_the_exit_code(tmp_path: Path) -> None:
    folder = str(write_model(tmp_path, LLAMA_CONFIG, llama_shapes(), "F32"))  # a warning
    assert [
        run("audit", folder).exit_code,
        run("audit", folder, "--fail-on", "warning").exit_code,
    ] == [0, 1]
    shapes = llama_shapes({**LLAMA_CONFIG, "num_key_value_heads": 4})
    broken = str(write_model(tmp_path, LLAMA_CONFIG, shapes))
    assert run("audit", broken).exit_code == 1
    assert run("audit", broken, "--fail-on", "never").exit_code == 0


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("r.html", "<!DOCTYPE html>"),
        ("r.HTM", "<!DOCTYPE html>"),
        ("r.md", "## "),
        ("r.json", "{"),
        ("r.csv", "report,"),
        ("r.txt", "openai-community/gpt2"),
        ("r", "openai-community/gpt2"),
    ],
)
def test_the_name_of_the_output_says_the_format(tmp_path: Path, name: str, start: str) -> None:
    for arguments in (["gpt2", "-o", str(tmp_path / name)], ["-o", str(tmp_path / name), "gpt2"]):
        assert run("audit", *arguments).exit_code == 0
        assert (tmp_path / name).read_text().startswith(start)
    explicit = run("audit", "gpt2", "-o", str(tmp_path / name), "--format", "csv")
    assert explicit.exit_code == 0
    assert (tmp_path / name).read_text().startswith("report,")


def test_output_goes_to_a_file(model: Path, tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    result = run("audit", str(model), "--format", "json", "-o", str(target))
    assert (result.exit_code, result.stdout) == (0, "")
    assert json.loads(target.read_text())["schema_version"] == 1
    assert run("audit", str(model), "-o", str(tmp_path / "no" / "x")).exit_code == 3


MISTAKES: list[tuple[list[str], str]] = [
    (["audit", "no-such-model"], "headcount models"),
    (["audit", "./nowhere"], "no such file"),
    (["audit", "gpt2", "--context", "lots"], "number of tokens"),
    (["audit", "gpt2", "--context", "0"], "number of tokens"),
    (["audit", "gpt2", "--batch-size", "0"], "batch-size"),
    (["audit", "gpt2", "--kv-dtype", "bf17"], "known dtype"),
    (["audit"], "Missing argument"),
    (["audit", "gpt2", "--format", "yaml"], "yaml"),
]


@pytest.mark.parametrize(("arguments", "expected"), MISTAKES)
def test_a_mistake_gets_a_message_and_exit_code_2(arguments: list[str], expected: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert expected in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


WRONG_CONFIGS: list[tuple[dict[str, Any], str]] = [
    ({"num_key_value_heads": 3}, "not divisible by num_key_value_heads 3; possible are 1, 2, 4, 8"),
    ({"num_key_value_heads": 16}, "possible are"),
    ({"num_attention_heads": "8"}, "an integer is expected"),
    ({"num_attention_heads": True}, "an integer is expected"),
    ({"num_attention_heads": 0}, "from 1"),
    ({"num_attention_heads": -8}, "from 1"),
    (
        {"num_attention_heads": 7, "num_key_value_heads": 7},
        "not divisible by num_attention_heads 7",
    ),
    ({"num_hidden_layers": 10**9}, "2,000"),
    ({"hidden_size": 10**18}, "1,000,000,000"),
    ({"hidden_size": [32]}, "an integer is expected"),
    ({"attention_bias": "yes"}, "true or false"),
    ({"model_type": 3, "architectures": None}, "model_type is 3; a string is expected"),
    ({"layer_types": ["full_attention"]}, "1 entries for 3 layers"),
    ({"layer_types": ["wild"] * 3}, "'wild'"),
    ({"dtype": 16}, "dtype"),
    ({"dtype": "bf17"}, "bf17"),
]


@pytest.mark.parametrize(("changes", "expected"), WRONG_CONFIGS)
def test_an_impossible_config_is_refused(
    tmp_path: Path, changes: dict[str, Any], expected: str
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA_CONFIG, **changes}))
    result = run("audit", str(path))
    assert (result.exit_code, result.stdout) == (2, "")
    assert expected in result.stderr
    assert str(path) in result.stderr


def test_a_size_that_nobody_gave_is_called_a_default(tmp_path: Path) -> None:
    """Qwen2Config has 32 K/V heads (transformers), and reads no num_kv_heads."""
    sizes = {"hidden_size": 5120, "num_attention_heads": 40, "num_kv_heads": 8}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "qwen2", **sizes}))
    assert (
        "num_attention_heads 40 is not divisible by num_key_value_heads 32 (class default of"
        " Qwen2Config, which does not read num_kv_heads: is that meant?)"
    ) in run("audit", str(path)).stderr


def test_whole_floats_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA_CONFIG, "num_attention_heads": 8.0}))
    assert run("audit", str(path)).exit_code == 0


def test_weights_alone_ask_for_their_config(model: Path, tmp_path: Path) -> None:
    lone = tmp_path / "lone" / "model.safetensors"
    lone.parent.mkdir()
    (model / "model.safetensors").rename(lone)
    assert "--config FILE" in run("audit", str(lone)).stderr
    assert run("audit", str(lone), "--config", str(model / "config.json")).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["gpt2"], "headcount audit gpt2"),
        (["compare", "gpt2", "llama-3-8b"], "Did you mean 'diff'?"),
        (["adit", "gpt2"], "Did you mean 'audit'?"),
        (["audit", "gpt2", "--device", "h100"], "It is an option of plan and reconcile."),
        (["plan", "gpt2", "--kv-heads", "4"], "It is an option of convert."),
        (["plan", "gpt2", "--users", "4"], "Did you mean --target-users?"),
        (["audit", "gpt2", "--json"], "Did you mean --format?"),
        (["plan", "gpt2", "--quantization", "fp8"], "Did you mean --dtype?"),
        (["plan", "gpt2", "--contxt", "4"], "Did you mean --context or"),
    ],
)
def test_what_somebody_may_have_meant_is_said(arguments: list[str], hint: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stderr.count(hint) == 1


@pytest.mark.parametrize("name", ["llamacpp", "Llama-CPP", "llama.cpp"])
def test_an_engine_is_known_by_the_letters_of_its_name(name: str) -> None:
    assert document("plan", "gpt2", "--engine", name)["engine"]["name"] == "llama.cpp"
    assert "is not one of" in run("plan", "gpt2", "--engine", f"{name}x").stderr
    assert document("plan", "gpt2", "--engine", "trt-llm")["engine"]["name"] == "tensorrt-llm"


def test_sizes_beyond_all_are_refused_and_large_counts_are_exact() -> None:
    asked = ("plan", "qwen3-8b", "--device", "h100", "--engine", "vllm")
    result = run(*asked, "--cpu-offload-gb", "1e300")
    assert result.exit_code == 2 and "cpu_offload_gb is 1e+300" in result.stderr
    users = 10**21
    (least,) = document(*asked, "--target-users", str(users))["engine"]["smallest"]
    each = -(-users // least["replicas"])  # what one serves
    assert least["replicas"] == -(-users // each)


def test_lists() -> None:
    assert "38 of 381 models match 'qwen3'" in run("models", "--search", "qwen3").stdout
    assert run("models", "qwen3").stdout == run("models", "--search", "qwen3").stdout
    assert "nearest are falcon" in run("models", "falcn").stdout.casefold()
    assert [d["key"] for d in document("devices", "rtx", "4090")["devices"]] == ["rtx-4090"]
    assert {r["code"] for r in document("rules", "shard")["rules"]} >= {"H201", "H204", "H205"}
    assert len(document("models")["models"]) == 381
    devices = document("devices")["devices"]
    assert len(devices) >= 30
    assert all(d["usable_memory"] <= d["memory"] for d in devices)


@pytest.mark.parametrize("command", sorted(main.commands))
def test_every_command_has_help_with_an_example(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert "Example" in result.stdout


def test_findings_are_selected_and_ignored(tmp_path: Path) -> None:
    """A dtype mismatch (H106, warning) and an odd head_dim (H401, warning)."""
    config = {**LLAMA_CONFIG, "head_dim": 3}
    folder = str(write_model(tmp_path, config, llama_shapes(config), "F32"))

    def codes(*options: str) -> list[str]:
        return [f["code"] for f in document("audit", folder, *options)["findings"]]

    assert codes() == ["H106", "H401", "H404"]
    assert codes("--select", "H1") == ["H106"]
    assert codes("--select", "h1,H404") == ["H106", "H404"]
    assert codes("--select", "H4", "--ignore", "H401") == ["H404"]
    assert codes("--ignore", "H1", "--ignore", "H4") == []
    assert run("audit", folder, "--fail-on", "warning", "--ignore", "H1,H401").exit_code == 0
    assert run("audit", folder, "--fail-on", "warning", "--select", "H1").exit_code == 1
    for wrong in ("H9", "", "H1,X"):
        mistake = run("audit", folder, "--select", wrong)
        assert (mistake.exit_code, mistake.stdout) == (2, "")
        assert "headcount rules" in mistake.stderr


def test_the_rules_are_listed() -> None:
    rules = document("rules")["rules"]
    assert len(rules) >= 40
    assert rules[0] == {
        **{"code": "H101", "name": "kv-heads-mismatch", "severity": "error", "reads": "headers"},
        "says": "The rows of k_proj are another number of K/V heads than the config's",
    }


@pytest.mark.parametrize(
    "arguments",
    [
        *(("audit", ""), ("audit", "gpt2", ""), ("plan", ""), ("diff", "gpt2", "")),
        *(("plan", "gpt2", "--device", ""), ("plan", "gpt2", "--dtype", "")),
        *(("audit", "gpt2", "--kv-dtype", ""), ("audit", "gpt2", "-o", "")),
        ("audit", "gpt2", "--batch-size", "1000001"),
    ],
)
def test_an_empty_value_and_an_absurd_batch_are_wrong_use(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "must not be empty" in result.stderr or "1000000" in result.stderr


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("a" * 300, "too long"),
        ("a" * 300 + "/b", "too long"),
        ("~nosuchuser/x", "home directory of ~nosuchuser"),
        ("wt/shards without index", "no such file or folder, and no valid Hub id"),
        ("./no\x1b[31m", r"no\x1b[31m: no such file"),
    ],
)
def test_a_path_that_cannot_be_gives_a_message_fit_for_a_terminal(name: str, reason: str) -> None:
    result = run("audit", name)
    assert (result.exit_code, result.stdout) == (2, "")
    assert reason in result.stderr
    assert "\x1b" not in result.stderr
    assert isinstance(result.exception, SystemExit)


def test_a_long_message_is_cut(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "x" * 100_000}))
    result = run("audit", str(tmp_path), "--strict")
    assert result.exit_code == 2
    assert len(result.stderr) < 3000


def test_csv_has_no_control_characters(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "a\x1b[31mb", LLAMA_CONFIG, llama_shapes())
    text = run("audit", str(folder), "--format", "csv").stdout
    assert r"a\x1b[31mb" in text
    assert "\x1b" not in text


@pytest.mark.parametrize("form", ["table", "markdown", "json", "csv", "html"])
def test_a_folder_whose_name_is_not_utf8(tmp_path: Path, form: str) -> None:
    try:
        folder = write_model(tmp_path / "b\udcffd", LLAMA_CONFIG, llama_shapes())
    except OSError:
        pytest.skip("this file system takes UTF-8 only")
    out = tmp_path / "report"
    assert run("audit", str(folder), "--format", form, "-o", str(out)).exit_code == 0
    assert r"b\udcffd" in out.read_text(encoding="utf-8")
    printed = run("audit", str(folder), "--format", form)
    assert (printed.exit_code, printed.stdout) == (0, out.read_text(encoding="utf-8"))
    if form == "json":
        assert json.loads(printed.stdout)["model"]["id"] == str(folder)


def test_values_that_json_does_not_know_are_strings(tmp_path: Path) -> None:
    path = tmp_path / "t5.json"
    path.write_text('{"model_type": "t5", "feed_forward_proj": -Infinity}')
    origins = document("audit", str(path), "--explain")["origins"]
    assert origins["feed_forward_proj"]["value"] == "-inf"


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = [sys.executable, "-c", "from headcount.cli import main; main()", "models"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    with process:
        assert process.stderr.read() == ""


def test_every_file_of_a_command_is_listed() -> None:
    folder = Path(headcount.commands.__file__).parent
    named = {file.stem for file in folder.glob("*.py") if f"\ndef {file.stem}(" in file.read_text()}
    assert named == set(COMMANDS)
    assert {name: COMMANDS[name].name for name in COMMANDS} == {name: name for name in COMMANDS}


def test_defaults_of_options_are_those_of_the_request() -> None:
    """An option that gave another default, or none of its own, would not say what happens."""
    from headcount.convert.plan.request import ConversionRequest

    defaults = {field.name: field.default for field in fields(ConversionRequest)}
    shown = {p.name: p.default for p in COMMANDS["convert"].params if getattr(p, "show_default", 0)}
    assert {name: defaults[name] for name in ("seed", "home", "workers")}.items() <= shown.items()


def test_each_option_of_convert_stands_under_one_heading_of_its_help() -> None:
    context = click.Context(convert, info_name="convert", help_option_names=["-h", "--help"])
    own = {p.name for p in convert.params if isinstance(p, click.Option)}
    named = [name for names in convert.headings.values() for name in names]
    assert sorted(named) == sorted(own, key=str)
    said = run("convert", "--help").stdout
    said = said[said.index("What is made:") :]
    for param in convert.get_params(context):
        if isinstance(param, click.Option):
            (flag, *_) = [one for one in param.opts if one.startswith("--")]
            assert len(re.findall(rf"(?m)^  (?:-\w, )?{flag}(?![\w-])", said)) == 1, flag
    headings = re.findall(r"(?m)^([A-Z].*):\n  -", said)
    assert headings == [*convert.headings] and len(headings) > 5
    assert (
        said.index("What is made:") < said.index("  --kv-heads N ") < said.index("How it is made")
    )
