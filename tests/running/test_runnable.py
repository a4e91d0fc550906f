"""What is refused before transformers reads a weight, and what it may not make up."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file

from headcount.cli import main
from headcount.model.errors import HeadcountError
from headcount.running.load import load_model, resolve_load_dtype
from headcount.running.placement import Placement, resolve_device
from headcount.running.runnable import open_runnable
from headcount.running.tokens import load_tokenizer

pytestmark = pytest.mark.needs_convert

SaveModel = Callable[..., Path]
CPU = Placement(inputs=torch.device("cpu"))


def _edit(folder: Path, **changes: Any) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return str(folder)


def _edit_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> str:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, {"format": "pt"})
    return str(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"auto_map": {"AutoConfig": "evil.Config"}}, "auto_map asks for code"),
        ({"rope_parameters": {"auto_map": {}}}, "auto_map asks for code"),
        ({"trust_remote_code": True}, "sets trust_remote_code"),
        ({"_attn_implementation": "someone/kernels"}, "may load foreign code"),
        ({"_attn_implementation_internal": "someone/kernels"}, "may load foreign code"),
        ({"attn_implementation": "flash_attention_2"}, "may load foreign code"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "not a causal language model"),
        ({"model_type": "nonesuch"}, "transformers cannot use it"),
        ({"vocab_size": "many"}, "transformers cannot use it"),
    ],
)
def test_configs_that_are_refused(
    save_model: SaveModel, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(HeadcountError, match=message):
        open_runnable(_edit(save_model("llama"), **changes))


@pytest.mark.parametrize(
    ("model_type", "architectures"),
    [
        ("t5", ["T5ForConditionalGeneration"]),
        ("bert", ["BertForMaskedLM"]),
        ("bert", None),
        ("bart", ["BartForConditionalGeneration"]),
    ],
)
def test_encoders_and_encoder_decoders_are_refused(
    tmp_path: Path, model_type: str, architectures: list[str] | None
) -> None:
    config = {"model_type": model_type, "architectures": architectures}
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file({"x": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(HeadcountError, match="not a causal language model"):
        open_runnable(str(tmp_path))


def test_a_harmless_attention_setting_is_accepted(save_model: SaveModel) -> None:
    open_runnable(_edit(save_model("llama"), _attn_implementation="eager"))


def test_a_name_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HeadcountError, match="not a folder; give one"):
        open_runnable("org/name")


def test_a_name_that_the_system_takes_for_none_is_refused() -> None:
    with pytest.raises(HeadcountError, match="cannot be read: File name too long"):
        open_runnable("x" * 300)
    with pytest.raises(HeadcountError, match="cannot be read: File name too long"):
        load_tokenizer(Path("x" * 300))


def test_weights_in_pickles_are_not_loaded(save_model: SaveModel) -> None:
    folder = save_model("llama")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(HeadcountError, match=r"no model\.safetensors"):
        open_runnable(str(folder))


@pytest.mark.parametrize("shard", ["../model.safetensors", "/etc/model.safetensors", "a.bin"])
def test_an_index_that_points_elsewhere_is_refused(save_model: SaveModel, shard: str) -> None:
    folder = save_model("llama")
    (folder / "model.safetensors").unlink()
    index = {"metadata": {}, "weight_map": {"lm_head.weight": shard}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(HeadcountError, match="a shard is a plain file name"):
        open_runnable(str(folder))


def test_a_missing_shard_is_refused(save_model: SaveModel) -> None:
    folder = save_model("llama")
    (folder / "model.safetensors").unlink()
    index = {"metadata": {}, "weight_map": {"lm_head.weight": "model-1.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(HeadcountError, match=r"shards are missing: model-1\.safetensors"):
        open_runnable(str(folder))


@pytest.mark.parametrize(
    "name", ["lm_head.weight", "model.layers.1.self_attn.k_proj.weight", "model.norm.weight"]
)
def test_no_weight_is_made_up(save_model: SaveModel, name: str) -> None:
    folder = _edit_weights(save_model("llama"), lambda tensors: tensors.pop(name))
    with pytest.raises(HeadcountError, match=rf"lack {name}.*random numbers"):
        load_model(open_runnable(folder), dtype=None, place=CPU)


def test_a_tied_head_needs_no_weight(save_model: SaveModel) -> None:
    folder = save_model("llama", tie_word_embeddings=True)
    assert "lm_head.weight" not in load_file(folder / "model.safetensors")
    load_model(open_runnable(str(folder)), dtype=None, place=CPU)


def test_weights_of_another_shape_are_refused(save_model: SaveModel) -> None:
    folder = _edit(save_model("llama"), num_key_value_heads=4)
    with pytest.raises(HeadcountError, match=r"k_proj\.weight' is \[16, 32\].*\[32, 32\]"):
        load_model(open_runnable(folder), dtype=None, place=CPU)


def test_weights_that_are_not_used_are_mentioned(save_model: SaveModel) -> None:
    folder = _edit(save_model("llama"), num_hidden_layers=1)
    (warning,) = load_model(open_runnable(folder), dtype=None, place=CPU).warnings
    assert "no place for model.layers.1." in warning


def test_the_dtype_is_the_checkpoints_unless_said_otherwise(save_model: SaveModel) -> None:
    runnable = open_runnable(_edit(save_model("llama"), dtype="bfloat16"))
    assert load_model(runnable, dtype=None, place=CPU).dtype == "bfloat16"
    assert load_model(runnable, dtype=resolve_load_dtype("fp64"), place=CPU).dtype == "float64"


def test_dtypes_and_devices_that_do_not_exist_are_refused() -> None:
    with pytest.raises(HeadcountError, match="models are run in"):
        resolve_load_dtype("int8")
    for name in ("gpu", "meta", "cuda:99"):
        with pytest.raises(HeadcountError, match="device"):
            resolve_device(name)


def test_a_folder_of_gguf_alone_is_told_from_one_that_lacks_its_config(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "model.gguf").write_bytes(b"GGUF")
    target = str(tmp_path / "new")
    model = str(folder)
    text = tmp_path / "text.txt"
    text.write_text("a b c")
    for command in (
        ("evaluate", model),
        ("evaluate", str(folder / "model.gguf")),
        ("heads", model),
        ("uptrain", model, "--teacher", model, "--text", str(text)),
        ("convert", model, target, "--kv-heads", "1"),
        ("convert", model, "--sweep", "1"),
        ("convert", model, target, "--format", "gguf"),
    ):
        done = CliRunner().invoke(main, command)
        assert done.exit_code == 2 and "GGUF is for llama.cpp" in done.stderr, (
            command,
            done.output,
        )
    assert "out: holds model.gguf and no config.json" in done.stderr
    (folder / "config.json").write_text("{}")
    assert "GGUF" not in CliRunner().invoke(main, ("evaluate", model)).stderr
