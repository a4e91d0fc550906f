"""Which tensors of a native architecture are pooled, and how the config follows."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import CONFIG_MAPPING, AutoModelForImageTextToText

from conversions import load_whole, run
from headcount.convert.conversion import ConversionReport
from headcount.convert.plan.errors import CannotConvertError
from headcount.convert.plan.planner import plan_conversion
from headcount.convert.plan.request import ConversionRequest
from headcount.convert.plan.steps import Pool

pytestmark = pytest.mark.needs_convert

MakeFolder = Callable[..., Path]
TEXT = {
    **{"vocab_size": 96, "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2},
    **{"num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 8},
    **{"max_position_embeddings": 64, "sliding_window": 16},
}
VISION = {
    **{"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2},
    **{"num_attention_heads": 4, "image_size": 28, "patch_size": 14},
}


def pooled(report: ConversionReport) -> set[str]:
    return {step.name for step in report.plan.steps if isinstance(step.action, Pool)}


@pytest.mark.parametrize("model_type", ["gemma3", "mistral3"])
def test_only_the_language_model_of_a_multimodal_one_changes(
    tmp_path: Path, model_type: str
) -> None:
    config_class: Any = CONFIG_MAPPING[model_type]
    vision = config_class().vision_config.model_type
    text = config_class().text_config.model_type
    config = config_class(
        text_config={**TEXT, "model_type": text}, vision_config={**VISION, "model_type": vision}
    )
    AutoModelForImageTextToText.from_config(config).save_pretrained(tmp_path / "source")
    report = run(tmp_path / "source", tmp_path / "out", 1)
    assert pooled(report) == {
        f"language_model.model.layers.{i}.self_attn.{part}_proj.weight"
        for i in range(2)
        for part in "kv"
    }
    before = json.loads((tmp_path / "source" / "config.json").read_text())
    after = json.loads((tmp_path / "out" / "config.json").read_text())
    before["text_config"]["num_key_value_heads"] = 1
    assert after == before
    load_whole(tmp_path / "out", AutoModelForImageTextToText)


@pytest.fixture
def with_extra_layer(grouped: MakeFolder, tmp_path: Path) -> Path:
    """A Llama whose file holds one layer more than its config: a layer for token prediction."""
    folder = Path(shutil.copytree(grouped("llama", 12, 4), tmp_path / "source"))
    tensors = load_file(folder / "model.safetensors")
    extra = {
        name.replace(".1.", ".2."): tensor.clone()
        for name, tensor in tensors.items()
        if ".layers.1." in name
    }
    save_file({**tensors, **extra}, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_layers_beyond_the_config_are_pooled_alike(with_extra_layer: Path, tmp_path: Path) -> None:
    report = run(with_extra_layer, tmp_path / "out", 2)
    assert [layer.index for layer in report.layers] == [0, 1, 2]
    tensors = load_file(tmp_path / "out" / "model.safetensors")
    first, second = (f"model.layers.{i}.self_attn.v_proj.weight" for i in (1, 2))
    assert torch.equal(tensors[first], tensors[second])


def test_an_incomplete_layer_beyond_the_config_is_refused(
    with_extra_layer: Path, tmp_path: Path
) -> None:
    file = with_extra_layer / "model.safetensors"
    tensors = load_file(file)
    del tensors["model.layers.2.self_attn.v_proj.weight"]
    save_file(tensors, file, metadata={"format": "pt"})
    request = ConversionRequest(
        source=with_extra_layer, target=tmp_path / "out", num_key_value_heads=2
    )
    with pytest.raises(CannotConvertError, match="layer 2 has no v projection"):
        plan_conversion(request)


@pytest.mark.parametrize(
    ("model_type", "shape", "approximate"),
    [
        ("qwen3", (8,), False),  # one norm for all heads: not pooled
        ("cohere", (1, 8), False),  # a row per head
        ("olmo2", (8,), True),  # over all heads
    ],
)
def test_key_norms_by_their_kind(
    grouped: MakeFolder, tmp_path: Path, model_type: str, shape: tuple[int, ...], approximate: bool
) -> None:
    report = run(grouped(model_type), tmp_path / "out", 1)
    name = "model.layers.1.self_attn.k_norm.weight"
    norm = load_file(tmp_path / "out" / "model.safetensors")[name]
    assert norm.shape == shape
    assert (name in pooled(report)) == (model_type != "qwen3")
    assert any("mean square" in note for note in report.plan.notes) == approximate
    if name in pooled(report):
        old = load_file(grouped(model_type) / "model.safetensors")[name].reshape(3, 8)
        assert torch.equal(norm.flatten(), old.double().mean(0).float())


def test_a_list_of_norms_gets_shorter(grouped: MakeFolder, tmp_path: Path) -> None:
    source = grouped("stablelm", 12, 6)
    run(source, tmp_path / "out", 3)
    before = load_file(source / "model.safetensors")
    after = load_file(tmp_path / "out" / "model.safetensors")
    base = "model.layers.0.self_attn.k_layernorm.norms."
    assert {name for name in after if name.startswith(base)} == {
        f"{base}{head}.weight" for head in range(3)
    }
    mean = (before[f"{base}2.weight"].double() + before[f"{base}3.weight"].double()) / 2
    assert torch.equal(after[f"{base}1.weight"], mean.float())
