"""GPT-2 to GPTBigCode: the same logits as a GPT-2 whose K/V heads are tied by hand."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GPT2Config, GPTBigCodeConfig

from headcount.arch.rehoming.bigcode import GPT2_TO_BIGCODE
from headcount.convert.conversion import convert
from headcount.convert.plan.errors import CannotConvertError, HeadCountError
from headcount.convert.plan.planner import plan_conversion
from headcount.convert.plan.request import ConversionRequest

pytestmark = pytest.mark.needs_convert

BuildModel = Callable[..., Any]
HEADS, D = 6, 8
SIZES = {"n_embd": HEADS * D, "n_head": HEADS, "n_layer": 2, "n_positions": 32}
TOKENS = torch.tensor([[5, 17, 33, 80, 7, 61, 42, 9]])


def request(source: Path, target: Path, kv: int = 1, home: Any = "auto") -> ConversionRequest:
    return ConversionRequest(source=source, target=target, num_key_value_heads=kv, home=home)


def tie_heads(model: Any) -> None:
    """Gives all K heads of a layer the mean of them, and all V heads likewise."""
    for block in model.transformer.h:
        for parameter in block.attn.c_attn.parameters():
            query, *key_value = parameter.data.split(HEADS * D, dim=-1)
            tied = [
                part.unflatten(-1, (HEADS, D))
                .mean(-2, keepdim=True)
                .expand(*part.shape[:-1], HEADS, D)
                .flatten(-2)
                for part in key_value
            ]
            parameter.data = torch.cat([query, *tied], dim=-1)


@pytest.mark.parametrize("tied_embeddings", [True, False])
def test_logits_equal_those_of_a_hand_tied_gpt2(
    build_model: BuildModel, tmp_path: Path, tied_embeddings: bool
) -> None:
    model = build_model("gpt2", **SIZES, tie_word_embeddings=tied_embeddings).double()
    model.save_pretrained(tmp_path / "gpt2")
    convert(request(tmp_path / "gpt2", tmp_path / "mqa"), progress=False)
    converted = AutoModelForCausalLM.from_pretrained(tmp_path / "mqa").eval()
    assert type(converted).__name__ == "GPTBigCodeForCausalLM"
    assert converted.dtype == torch.float64
    tie_heads(model)
    with torch.no_grad():
        difference = (converted(TOKENS).logits - model(TOKENS).logits).abs().max().item()
    assert difference <= 1e-12
    options = {"max_new_tokens": 12, "do_sample": False}
    assert torch.equal(converted.generate(TOKENS, **options), model.generate(TOKENS, **options))


def test_class_defaults_do_not_leak(build_model: BuildModel, tmp_path: Path) -> None:
    """GPT-2's class means gelu_new where its file says nothing, GPTBigCode's another function."""
    build_model("gpt2", **SIZES).save_pretrained(tmp_path / "gpt2")
    path = tmp_path / "gpt2" / "config.json"
    config = json.loads(path.read_text())
    del config["activation_function"]
    path.write_text(json.dumps(config))
    plan = plan_conversion(request(tmp_path / "gpt2", tmp_path / "mqa"))
    ours, theirs = GPT2Config().to_dict(), GPTBigCodeConfig().to_dict()
    differ = {k: v for k, v in ours.items() if k in theirs and theirs[k] != v and k != "model_type"}
    assert differ == GPT2_TO_BIGCODE.defaults
    assert {**plan.config, **GPT2_TO_BIGCODE.defaults} == plan.config


def test_every_change_of_the_config_is_told(build_model: BuildModel, tmp_path: Path) -> None:
    build_model("gpt2", **SIZES).save_pretrained(tmp_path / "gpt2")
    path = tmp_path / "gpt2" / "config.json"
    old = json.loads(path.read_text())
    del old["activation_function"]
    path.write_text(json.dumps(old))
    plan = plan_conversion(request(tmp_path / "gpt2", tmp_path / "mqa"))
    changed = {
        key for key in {*old, *plan.config} if old.get(key, "none") != plan.config.get(key, "none")
    }
    assert {change.partition(":")[0] for change in plan.config_changes} == changed
    assert {"summary_type", "activation_function", "num_key_value_heads"} <= changed
    assert "activation_function: absent -> gelu_new" in plan.config_changes
    assert "model_type: gpt2 -> gpt_bigcode" in plan.config_changes


def test_masks_of_old_files_are_dropped(build_model: BuildModel, tmp_path: Path) -> None:
    build_model("gpt2", **SIZES).save_pretrained(tmp_path / "gpt2")
    file = tmp_path / "gpt2" / "model.safetensors"
    masks = {f"transformer.h.{i}.attn.bias": torch.ones(1, 1, 32, 32) for i in range(2)}
    save_file({**load_file(file), **masks}, file, metadata={"format": "pt"})
    report = convert(request(tmp_path / "gpt2", tmp_path / "mqa"), progress=False)
    assert {d.source.name for d in report.plan.dropped} == set(masks)
    assert not masks.keys() & load_file(tmp_path / "mqa" / "model.safetensors").keys()


def test_several_heads_have_a_home_of_our_own(build_model: BuildModel, tmp_path: Path) -> None:
    build_model("gpt2", **SIZES).save_pretrained(tmp_path / "gpt2")
    assert plan_conversion(request(tmp_path / "gpt2", tmp_path / "gqa", 3)).home.startswith(
        "custom"
    )
    with pytest.raises(HeadCountError, match="--kv-heads can be 1, 2, 3"):
        plan_conversion(request(tmp_path / "gpt2", tmp_path / "gqa", 4))


@pytest.mark.usefixtures("classes_of_transformers")
@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("scale_attn_by_inverse_layer_idx", "scale_attn_by_inverse_layer_idx"),
        ("add_cross_attention", "add_cross_attention is set"),
    ],
)
def test_what_gpt_bigcode_cannot_say_is_refused(
    build_model: BuildModel, tmp_path: Path, flag: str, message: str
) -> None:
    build_model("gpt2", **SIZES, **{flag: True}).save_pretrained(tmp_path / "gpt2")
    with pytest.raises(CannotConvertError, match=message):
        plan_conversion(request(tmp_path / "gpt2", tmp_path / "mqa", home="rehome"))


def test_unknown_tensors_are_refused(build_model: BuildModel, tmp_path: Path) -> None:
    build_model("gpt2", **SIZES).save_pretrained(tmp_path / "gpt2")
    file = tmp_path / "gpt2" / "model.safetensors"
    extra = {"transformer.h.1.adapter.weight": torch.ones(2, 2)}
    save_file({**load_file(file), **extra}, file, metadata={"format": "pt"})
    with pytest.raises(CannotConvertError, match=r"h\.1\.adapter\.weight"):
        plan_conversion(request(tmp_path / "gpt2", tmp_path / "mqa"))
