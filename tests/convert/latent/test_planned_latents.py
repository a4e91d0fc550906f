"""The rows of `plan` with latents are of models that `convert` makes: their bytes are those of the
audit of what it wrote."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from gguf_files import write_gguf
from headcount.cli import main

pytestmark = pytest.mark.needs_convert
SaveModel = Callable[..., Path]
H100 = ("--device", "h100")
SIZES = {
    **{"hidden_size": 48, "num_hidden_layers": 2, "vocab_size": 96, "intermediate_size": 32},
    **{"num_attention_heads": 6, "head_dim": 8, "max_position_embeddings": 64},
}


def answer(*words: object) -> Any:
    result = CliRunner().invoke(main, [*map(str, words), "--format", "json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def latent_rows(model: object, engine: str) -> list[dict[str, Any]]:
    document = answer("plan", model, "--engine", engine, *H100)
    return [row for row in document["what_if"] if "converted_by" in row]


def assert_made(source: Path, engine: str, folder: Path, count: int = 2) -> None:
    rows = latent_rows(source, engine)
    assert len(rows) == count
    for number, row in enumerate(rows):
        program, command, *options = row["converted_by"].split()
        assert (program, command) == ("headcount", "convert")
        out = folder / str(number)
        assert CliRunner().invoke(main, [command, str(source), str(out), *options]).exit_code == 0
        totals = answer("audit", out)["totals"]
        assert row["rank_cache_bytes_per_token"] == totals["cache_bytes_per_token"]
        planned = answer("plan", out, "--engine", engine, *H100)
        assert row["weights_bytes"] == planned["memory"]["weights_bytes"]


@pytest.mark.parametrize("model_type", ["llama", "gpt2", "opt", "mistral"])
def test_rows_of_transformers_are_latents(
    save_model: SaveModel, tmp_path: Path, model_type: str
) -> None:
    assert_made(save_model(model_type, tokens="none"), "transformers", tmp_path)


def saved(folder: Path, model_type: str, **config: Any) -> Path:
    made = CONFIG_MAPPING[model_type](**{**SIZES, **config})
    AutoModelForCausalLM.from_config(made).to(torch.bfloat16).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("model_type", "kv_heads", "is_tied"),
    [("llama", 6, False), ("llama", 3, True), ("granite", 3, False)],
)
def test_rows_of_engines_are_latent_attention(
    tmp_path: Path, model_type: str, kv_heads: int, is_tied: bool
) -> None:
    config = {"num_key_value_heads": kv_heads, "tie_word_embeddings": is_tied}
    assert_made(saved(tmp_path / "source", model_type, **config), "sglang", tmp_path)


@pytest.mark.parametrize(
    ("model_type", "kv_heads", "rows"), [("llama", 8, [576, 512, 320]), ("granite", 4, [320])]
)
def test_rows_of_vllm_have_sizes_that_it_runs(
    tmp_path: Path, model_type: str, kv_heads: int, rows: list[int]
) -> None:
    """Of heads of 64, whose key rotates; a layer keeps 1,024 elements of a token, or 512."""
    config = {"hidden_size": 512, "num_attention_heads": 8, "head_dim": 64}
    source = saved(tmp_path / "source", model_type, **config, num_key_value_heads=kv_heads)
    found = [row["converted_by"] for row in latent_rows(source, "vllm")]
    assert found == [f"headcount convert --latent {size} --home mla" for size in rows]
    assert_made(source, "vllm", tmp_path, len(rows))


@pytest.mark.parametrize(
    ("model", "engine"),
    [
        ("qwen3-8b", "vllm"),  # norms of q and k
        ("llama-3.1-8b", "vllm"),  # a scaled rotation
        ("gpt2", "sglang"),
        ("gemma-3-12b", "transformers"),  # nests its language model
        ("deepseek-v3", "transformers"),  # has latents already
        ("llama-3-8b", "llama.cpp"),
    ],
)
def test_what_is_refused_has_no_rows(model: str, engine: str) -> None:
    assert not latent_rows(model, engine)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "transformers"])
def test_a_gguf_file_has_no_rows(tmp_path: Path, engine: str) -> None:
    """`convert` reads safetensors."""
    assert not latent_rows(write_gguf(tmp_path / "model.gguf"), engine)
