"""A class in `architectures` that is none of the model_type: read as what it is, or named."""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from headcount.arch.foreign_classes import foreign_class
from headcount.arch.read_config import Reading, read_config
from headcount.audit import audit_model
from headcount.model.errors import UnsupportedModelError
from truth_record import recorded

# xai-org/grok-2, whose model_type is "git" (SGLang's configs/model_config.py speaks of it, too).
GROK2 = {
    **{"model_type": "git", "architectures": ["Grok1ForCausalLM"], "vocab_size": 131072},
    **{"hidden_size": 8192, "num_hidden_layers": 64, "num_attention_heads": 64, "head_dim": 128},
    **{"num_key_value_heads": 8, "intermediate_size": 32768, "moe_intermediate_size": 16384},
    **{"num_local_experts": 8, "num_experts_per_tok": 2, "residual_moe": True},
    **{"max_position_embeddings": 131072, "torch_dtype": "bfloat16"},
}
SIZES = {
    **{"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 8, "vocab_size": 96},
    **{"num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 128},
    **{"max_position_embeddings": 128},
}


def heads(reading: Reading) -> set[int]:
    return {m.num_key_value_heads for layer in reading.spec.layers for m in layer.mixers}


def test_grok_2_has_eight_key_value_heads() -> None:
    reading = read_config(GROK2, "config.json")
    assert heads(reading) == {8}
    assert reading.spec.cache_bytes_per_token() == 64 * 2 * 8 * 128 * 2
    total, why = reading.total()
    assert total is None
    assert "'git'" in str(why) and "Grok1ForCausalLM" in str(why)


def test_strict_refuses_a_class_of_another_type(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(GROK2))
    assert audit_model(str(path)).spec.parameters is None
    with pytest.raises(UnsupportedModelError, match=r"Grok1ForCausalLM.*'git'.*H422"):
        audit_model(str(path), strict=True)


@pytest.mark.needs_convert
@pytest.mark.parametrize("model_type", ["git", "bloom", "gpt2", "opt"])
def test_the_class_decides_as_transformers_builds_it(model_type: str) -> None:
    torch, transformers = map(importlib.import_module, ("torch", "transformers"))
    with torch.device("meta"):
        model: Any = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES))
    attention = model.model.layers[0].self_attn
    config = {**SIZES, "model_type": model_type, "architectures": ["LlamaForCausalLM"]}
    reading = read_config(config, "config.json")
    (mixer,) = {mixer for layer in reading.spec.layers for mixer in layer.mixers}
    assert mixer.num_key_value_heads == attention.k_proj.out_features // attention.head_dim
    assert mixer.parameters().total == sum(p.numel() for p in attention.parameters())


# ColQwen3 has a projection, QwenRM a head of its own; the third is a tower.
@pytest.mark.parametrize("name", ["ColQwen3Model", "QwenRMForCausalLM", "Qwen3VisionModel"])
def test_a_class_that_nobody_knows_has_no_total(name: str) -> None:
    config = {**SIZES, "model_type": "qwen3", "architectures": [name]}
    reading = read_config(config, "config.json")
    total, why = reading.total()
    assert total is None
    assert name in str(why)
    assert heads(reading) == {2}
    plain = read_config({**config, "architectures": ["Qwen3ForCausalLM"]}, "config.json")
    assert plain.parameters() is not None


def test_a_nested_class_of_another_type_decides_and_is_named(tmp_path: Path) -> None:
    """vLLM takes the class of a nested language model from there, transformers its model_type."""
    text = {**SIZES, "model_type": "llama", "architectures": ["Qwen2ForCausalLM"]}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "llava", "text_config": text}))
    audit = audit_model(str(path))
    assert audit.spec.parameters is None
    (found,) = (one for one in audit.findings if one.code == "H422")
    assert (found.where, found.severity) == ("text_config.architectures", "warning")
    attention = read_config({**SIZES, "model_type": "qwen2"}, "config.json").spec.layers[0]
    assert audit.spec.layers[0].parameters() == attention.parameters()


@pytest.mark.parametrize(
    ("part", "inner"),
    [
        ("text_config", {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}),
        ("text_config", {"model_type": "llama", "architectures": ["NobodyKnowsForCausalLM"]}),
        ("text_config", {"model_type": "llama", "architectures": None}),
        ("vision_config", {"model_type": "clip_vision_model", "architectures": ["CLIPModel"]}),
    ],
)
def test_nested_classes_that_say_nothing_else(part: str, inner: dict[str, Any]) -> None:
    """Of the type, of nobody, or of the whole that the part was taken from."""
    config = {"model_type": "llava", part: inner}
    assert read_config(config, "config.json").foreign is None


# Types that transformers has no class for, by classes of transformers or of their own code.
@pytest.mark.parametrize(
    ("model_type", "name", "other"),
    [
        ("baichuan", "LlamaForCausalLM", "llama"),
        ("baichuan", "BaichuanForCausalLM", None),
        ("xverse", "GPT2LMHeadModel", "gpt2"),
        ("phi-msft", "PhiForCausalLM", None),  # its own code calls it so
        ("kimi_k2", "DeepseekV3ForCausalLM", None),
        ("hunyuan", "HunYuanMoEV1ForCausalLM", None),
        ("deepseek_vl_v2", "DeepseekOCRForCausalLM", None),
    ],
)
def test_types_of_other_code_are_judged_by_the_classes_that_are_known(
    model_type: str, name: str, other: str | None
) -> None:
    found = foreign_class({"architectures": [name]}, model_type)
    assert (found and found.other) == other
    code = {"auto_map": {"AutoModelForCausalLM": f"modeling.{name}"}}
    assert foreign_class({"architectures": [name], **code}, model_type) is None


def test_no_class_of_transformers_is_foreign_to_its_own_type() -> None:
    lines = [line for line in recorded("classes") if "reason" not in line]
    named = [(line["config"], name) for line in lines for name in line["classes"]]
    assert len(named) > 2000
    found = (
        foreign_class({**config, "architectures": [name]}, config["model_type"])
        for config, name in named
    )
    assert [one for one in found if one is not None] == []
