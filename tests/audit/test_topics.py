"""`headcount explain`: the numbers of its pages, held to published ones and to their own sums."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from checkpoints import LLAMA_CONFIG, llama_shapes, write_model
from headcount.audit.auditing import audit_model
from headcount.audit.topics import QUESTIONS
from headcount.audit.topics.explaining import explained
from headcount.cli import main
from headcount.report import FORMATS, render

MODELS = (
    *("llama-3-8b", "gpt2", "gemma-3-4b", "deepseek-v3", "falcon-7b", "qwen3-8b", "mistral-7b"),
    *(
        "t5-small",
        "bert-base",
        "mamba-2.8b",
        "jamba",
        "zamba2-7b",
        "gpt-oss-20b",
        "deepseek-v4-pro",
        "qwen3-next-80b-a3b",
    ),
)
# Published: products of what the config.json of the model's page says, or the figure of a paper.
PUBLISHED = (
    # Llama 3 8B: hidden 4096, 32 heads, 8 K/V heads, 32 layers (Grattafiori et al. 2024, table 3).
    ("llama-3-8b", "mha", "q_parameters", 4096 * 4096),
    ("llama-3-8b", "mha", "k_parameters", 4096 * 1024),
    ("llama-3-8b", "mha", "mha_projection_weights", 67_108_864),
    ("llama-3-8b", "w_o", "o_parameters", 16_777_216),
    ("llama-3-8b", "w_o", "o_parameters_per_head", 4096 * 128),
    ("llama-3-8b", "cache", "cache_bytes_of_first_token", 131_072),
    ("llama-3-8b", "cache", "cache_bytes", 2**30),
    ("llama-3-8b", "gqa", "cache_bytes_per_token_and_layer", 4096),
    ("llama-3-8b", "gqa", "mha_cache_bytes_per_token_and_layer", 16_384),
    ("llama-3-8b", "mqa", "mqa_cache_bytes_per_token_and_layer", 512),
    ("llama-3-8b", "group", "num_attention_heads", 32),
    ("llama-3-8b", "induction", "heads", 1024),
    # DeepSeek-V2, section 2.1.4: 4.5 x head_dim elements for MLA with head_dim 128.
    ("llama-3-8b", "mla", "mla_cache_elements_per_token_and_layer", 576),
    ("deepseek-v3", "mla", "cache_elements_per_token_and_layer", 576),
    ("deepseek-v3", "mla", "cache_bytes_per_token_and_layer", 1152),
    # The 70.272 KB a token of DeepSeek-V3 (Zhao et al. 2025, arXiv 2505.09343, table 1).
    ("deepseek-v3", "cache", "cache_bytes_of_first_token", 70_272),
    # GPT-2: 12 layers and hidden 768 (Radford et al. 2019, table 2), 12 heads (its config).
    ("gpt2", "mha", "mha_projection_weights", 2_359_296),
    ("gpt2", "induction", "heads", 144),
    # Qwen3-8B's head_dim of 128 and hidden_size of 4,096; T5-small's 8 heads of 64 in 512.
    ("qwen3-8b", "head_dim", "query_width", 4096),
    ("t5-small", "head_dim", "query_width", 512),
    # Gemma 3 4B: hidden 2,560, but 8 heads of 256 (its config).
    ("gemma-3-4b", "head_dim", "query_width", 2048),
    # Zamba2 7B: attention_hidden_size 7,168 = 32 heads of 224, twice hidden_size (its config).
    ("zamba2-7b", "mha", "q_parameters", 7168 * 7168),
    ("zamba2-7b", "mha", "o_parameters", 7168 * 3584),
    ("falcon-7b", "mqa", "mqa_cache_bytes_per_token_and_layer", 2 * 64 * 2),
    # Mistral 7B: a window of 4,096 (Jiang et al. 2023, table 1), 32,768 positions (its config).
    ("mistral-7b", "window", "window_cache_bytes", 4095 * 4096),
    ("mistral-7b", "window", "full_cache_bytes", 32_768 * 4096),
)
WINDOWED = {"gemma-3-4b", "mistral-7b"}
APPLIES = {
    "llama-3-8b": {"mha", "w_o", "head_dim", "cache", "gqa", "group", "induction"},
    "gpt2": {"mha", "w_o", "head_dim", "cache", "induction"},
    "falcon-7b": {"mha", "w_o", "head_dim", "cache", "group", "mqa", "induction"},
    "deepseek-v3": {"w_o", "head_dim", "cache", "mla", "induction"},
    "mistral-7b": {"mha", "w_o", "head_dim", "cache", "gqa", "group", "window", "induction"},
    "bert-base": {"mha", "w_o", "head_dim"},
    "mamba-2.8b": set(),
}


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["explain", *arguments])


def document(topic: str, model: str) -> Any:
    result = run(topic, model, "--format", "json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize(("model", "topic", "key", "value"), PUBLISHED)
def test_published_figures(model: str, topic: str, key: str, value: int) -> None:
    sums = {one["key"]: one["value"] for one in document(topic, model)["sums"]}
    assert sums[key] == value


def worth(filled: str) -> int:
    """What a filled formula comes to, without the words in brackets behind what is left."""
    digits = re.sub(r" \((?=[^)]*[A-Za-z])[^)]*\)", "", filled).replace(",", "").replace("x", "*")
    assert re.fullmatch(r"[\d*+\-() ]+", digits), filled
    return int(eval(digits))


@pytest.mark.parametrize("model", MODELS)
def test_every_page_of_every_kind_of_model(model: str) -> None:
    audit = audit_model(model)
    biases = sum(audit.layer_biases(layer) for layer in audit.spec.layers)
    for topic in QUESTIONS:
        report = explained(topic, audit, by_default=True)
        for line in render([report], "table").splitlines():
            assert len(line) <= 80, (topic, line)
        for one in report.document["sums"]:  # type: ignore[attr-defined]
            assert worth(one["filled"]) == one["value"], (topic, one)
            assert biases or "(biases)" not in one["filled"], (topic, one)
        if model in APPLIES:
            assert report.document["applies"] == (topic in APPLIES[model]), topic
        for form in FORMATS:
            assert render([report], form)


# Without biases or other state: the formula alone is the value.
@pytest.mark.parametrize(
    "model", ["llama-3-8b", "gemma-3-4b", "deepseek-v3", "falcon-7b", "qwen3-8b", "mistral-7b"]
)
def test_nothing_is_left_over_where_the_formula_is_all(model: str) -> None:
    for topic in QUESTIONS:
        for one in document(topic, model)["sums"]:
            left = re.findall(r"\((\D+)\)", one["filled"])
            windowed = model in WINDOWED and one["key"] == "cache_bytes"
            assert left == ["what windows or compression drop"] * windowed, one


@pytest.mark.parametrize("model", ["llama-3-8b", "gpt2", "bert-base"])
def test_four_squares_whatever_the_heads(model: str) -> None:
    page = document("mha", model)
    hidden = audit_model(model).spec.hidden_size
    weights = {row["projection_weights"] for row in page["other_heads"]}
    assert len(page["other_heads"]) > 2
    assert weights == {4 * hidden * hidden}


def test_what_is_kept_falls_with_the_heads_that_keep_it() -> None:
    rows = document("gqa", "llama-3-8b")["key_value_heads"]
    assert [row["num_key_value_heads"] for row in rows] == [1, 2, 4, 8, 16, 32]
    assert [row["cache_bytes"] for row in rows] == [512, 1024, 2048, 4096, 8192, 16384]


def test_the_cache_is_that_of_the_audit() -> None:
    for model in MODELS:
        totals = json.loads(CliRunner().invoke(main, ["audit", model, "--format", "json"]).stdout)[
            "totals"
        ]
        sums = {one["key"]: one["value"] for one in document("cache", model)["sums"]}
        assert sums.get("cache_bytes", 0) == totals["cache_bytes"], model


def test_what_grouping_saves_at_full_length() -> None:
    text = " ".join(run("gqa").stdout.split())  # 8,192 x 131,072 B; Grattafiori et al.: 32 heads, 8
    assert "keep 1.00 GiB of 8,192 tokens, where MHA would keep 4.00 GiB: 4.00x." in text


def test_windows_of_all_layers_are_counted() -> None:
    text = " ".join(run("window", "gemma-3-4b").stdout.split())  # 34 layers, every 6th global
    assert "29 of its layers have a window of 1,024 tokens; 5 have none." in text


def test_a_folder_is_explained_by_its_weights(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", LLAMA_CONFIG, llama_shapes())
    sums = {one["key"]: one["value"] for one in document("group", str(model))["sums"]}
    assert sums == {"num_attention_heads": LLAMA_CONFIG["num_attention_heads"]}
    missing = run("gqa", str(tmp_path / "none"))
    assert (missing.exit_code, missing.stdout) == (2, "")


def test_without_a_model_it_says_which_it_took() -> None:
    text = run("gqa").stdout
    assert "meta-llama/Meta-Llama-3-8B (" in text
    assert "(the default;" in text
    assert "(the default;" not in run("gqa", "llama-3-8b").stdout


def test_without_a_topic_they_are_listed_a_line_each() -> None:
    lines = run().stdout.splitlines()
    assert all(any(line.startswith(f"{topic} ") for line in lines) for topic in QUESTIONS)
    assert max(map(len, lines)) <= 80
    assert [row["topic"] for row in json.loads(run("--format", "json").stdout)["topics"]] == [
        *QUESTIONS
    ]
    assert len(run("--format", "csv").stdout.splitlines()) == len(QUESTIONS) + 1


def test_a_topic_that_is_none() -> None:
    result = run("llama-3-8b")
    assert (result.exit_code, result.stdout) == (2, "")
    assert all(f"'{topic}'" in result.stderr for topic in QUESTIONS)


def test_induction_says_where_heads_are_found() -> None:
    text = " ".join(run("induction", "gpt2").stdout.split())
    assert "`headcount heads MODEL`" in text
    assert "arXiv 2209.11895" in text


@pytest.mark.parametrize("topic", QUESTIONS)
def test_without_a_model_it_takes_one_that_the_topic_is_about(topic: str) -> None:
    found = json.loads(run(topic, "--format", "json").stdout)
    assert found["applies"] and found["model"]["by_default"]


def test_a_sum_is_said_once_and_of_what_it_is() -> None:
    text = run("gqa", "gpt2").stdout
    assert text.count("= 2 x 12 x 64 x 2 = 3,072 B") == 1
    assert "cache of a token in this layer" in text and "as MHA does" in text
    shared = run("gqa", "llama-3-8b").stdout
    assert "cache of a token in a layer with a K/V head for every head" in shared
