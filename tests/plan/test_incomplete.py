"""Files that lack what the config describes: the plan is of the whole model, and says so."""

import json
from math import prod
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from checkpoints import LLAMA_CONFIG, llama_shapes, write_model, write_sharded
from headcount.cli import main

PARAMETERS = sum(prod(shape) for shape in llama_shapes().values())
INDEX = "model.safetensors.index.json"


def plan(folder: Path) -> dict[str, Any]:
    done = CliRunner().invoke(main, ["plan", str(folder), "--device", "t4", "--format", "json"])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_sharded(tmp_path, LLAMA_CONFIG, llama_shapes(), shards=3)


def drop(folder: Path, number: int, *, listed: bool) -> None:
    """A shard from the folder and, unless it stays `listed`, from the index."""
    (shard,) = folder.glob(f"model-0000{number}-of-*.safetensors")
    shard.unlink()
    if not listed:
        index = json.loads((folder / INDEX).read_text())
        kept = {n: file for n, file in index["weight_map"].items() if file != shard.name}
        (folder / INDEX).write_text(json.dumps({**index, "weight_map": kept}))


def test_whole_files_are_weighed_without_a_warning(folder: Path) -> None:
    found = plan(folder)
    assert found["memory"]["weights_bytes"] == 2 * PARAMETERS
    assert not any("incomplete" in text for text in found["warnings"])


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_shard_that_is_missing_counts_all_the_same(
    folder: Path, number: int, listed: bool
) -> None:
    drop(folder, number, listed=listed)
    found = plan(folder)
    assert found["memory"]["weights_bytes"] == 2 * PARAMETERS
    assert [text for text in found["warnings"] if "The files are incomplete" in text]


def test_a_count_that_is_given_is_taken(folder: Path) -> None:
    drop(folder, 2, listed=False)
    words = ["plan", str(folder), "--device", "t4", "--parameters", "1m", "--format", "json"]
    done = CliRunner().invoke(main, words)
    assert json.loads(done.stdout)["memory"]["weights_bytes"] == 2_000_000


def test_layers_that_predict_are_in_files_and_not_in_an_engine(tmp_path: Path) -> None:
    """vLLM and SGLang skip them unless they speculate (get_spec_layer_idx_from_weight_name of
    vllm/model_executor/models/utils.py and its like); a plan of all files counts them."""
    count, shapes = LLAMA_CONFIG["num_hidden_layers"], llama_shapes()
    ahead = {
        name.replace("layers.0.", f"layers.{count}."): shape
        for name, shape in shapes.items()
        if ".layers.0." in name
    }
    size = 2 * sum(prod(shape) for shape in ahead.values())
    found = {}
    for name, more in (("alone", {}), ("ahead", ahead)):
        write_model(tmp_path / name, LLAMA_CONFIG, {**shapes, **more})
        for engine in ((), ("--engine", "vllm"), ("--engine", "sglang")):
            words = ["plan", str(tmp_path / name), "--device", "l4", *engine, "--format", "json"]
            done = CliRunner().invoke(main, words)
            found[name, engine[-1:]] = json.loads(done.stdout)["memory"]["weights_bytes"]
    assert found["ahead", ()] - found["alone", ()] == size > 0
    for engine in (("vllm",), ("sglang",)):
        assert found["ahead", engine] == found["alone", engine]
