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


def assert_made(source: Path, engine: str, folder: Path) -> None:
    rows = latent_rows(source, engine)
    assert len(rows) == 2
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


@pytest.mark.parametrize(("model_type", "kv_heads"), [("llama", 6), ("granite", 3)])
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_rows_of_engines_are_latent_attention(
    tmp_path: Path, model_type: str, kv_heads: int, engine: str
) -> None:
    config = CONFIG_MAPPING[model_type](**SIZES, num_key_value_heads=kv_heads)
    model = AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
    model.save_pretrained(tmp_path / "source")
    assert_made(tmp_path / "source", engine, tmp_path)


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
