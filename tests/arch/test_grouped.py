"""Configs and folders that a conversion with a modelling file of our own writes, as audited."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import headcount
from checkpoints import write_model
from config_specs import read_spec
from headcount.audit import audit_model
from headcount.model.errors import InvalidConfigError, UnsupportedModelError

MODULE = Path(headcount.__file__).parent / "convert" / "models" / "modeling_headcount.py"
BART = {
    **{"model_type": "headcount_bart", "d_model": 32, "vocab_size": 50, "encoder_layers": 1},
    **{"decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 8},
    **{"encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "max_position_embeddings": 20},
    "num_key_value_heads": 2,
}
GPT2 = {
    **{"model_type": "headcount_gpt2", "n_embd": 32, "n_head": 8, "n_layer": 1, "vocab_size": 50},
    **{"n_positions": 20, "num_key_value_heads": 2, "architectures": ["GroupedGPT2LMHeadModel"]},
    **{"dtype": "bfloat16", "tie_word_embeddings": True},
    "auto_map": {"AutoModelForCausalLM": "modeling_headcount.GroupedGPT2LMHeadModel"},
}


def heads(config: dict[str, Any]) -> list[tuple[str, str, int]]:
    spec = read_spec(config, "config.json")
    return [
        (layer.stack, mixer.kind, mixer.num_key_value_heads)  # type: ignore[union-attr]
        for layer in spec.layers
        for mixer in layer.mixers
    ]


def test_the_decoder_has_fewer_heads_and_the_encoder_as_many_as_ever() -> None:
    decoder = [("decoder", "attention", 2), ("decoder", "cross_attention", 2)]
    assert heads(BART) == [("encoder", "attention", 4), *decoder * 2]


def test_layers_may_differ() -> None:
    each = heads({**BART, "num_key_value_heads_per_layer": [4, 1]})
    assert [count for stack, _, count in each if stack == "decoder"] == [4, 4, 1, 1]


def test_the_count_stands_under_its_own_name() -> None:
    """Whisper's class reads encoder_attention_heads for num_key_value_heads."""
    whisper = {**BART, "model_type": "headcount_whisper", "num_mel_bins": 8}
    assert [count for stack, _, count in heads(whisper) if stack == "decoder"] == [2] * 4
    assert heads(whisper)[0] == ("encoder", "attention", 4)


def test_parameters_are_those_of_the_type_but_for_k_and_v() -> None:
    base = read_spec({**BART, "model_type": "bart"}, "config.json")
    own = read_spec(BART, "config.json")
    assert base.parameters is not None
    assert own.parameters is not None
    fewer = (
        2 * 2 * 2 * (8 - 2) * 4 * (32 + 1)
    )  # layers, attentions, k and v, heads * 4 * (in + bias)
    assert base.parameters - own.parameters == fewer


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_key_value_heads": 3}, "8 is not divisible by num_key_value_heads 3"),
        ({"num_key_value_heads": None}, "num_key_value_heads is missing"),
        ({"num_key_value_heads_per_layer": [2]}, "lists 1 layers of 2"),
        ({"num_key_value_heads_per_layer": [2, 3]}, "not divisible"),
        ({"num_key_value_heads_per_layer": [2, 0]}, "must be from 1"),
    ],
)
def test_impossible_counts(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidConfigError, match=words):
        read_spec({**BART, **changes}, "config.json")


def test_an_unknown_base_is_unknown() -> None:
    with pytest.raises(UnsupportedModelError, match="headcount_nothing"):
        read_spec({"model_type": "headcount_nothing"}, "config.json")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A GPT-2 with two K/V heads: c_attn holds 8 + 2 + 2 heads of 4."""
    names = {"c_attn": (32, 48), "c_proj": (32, 32)}
    shapes: dict[str, tuple[int, ...]] = {"transformer.wte.weight": (50, 32)}
    shapes |= {"transformer.wpe.weight": (20, 32)}
    for name, shape in names.items():
        shapes[f"transformer.h.0.attn.{name}.weight"] = shape
        shapes[f"transformer.h.0.attn.{name}.bias"] = shape[1:]
    for norm in ("h.0.ln_1", "h.0.ln_2", "ln_f"):
        shapes |= {f"transformer.{norm}.{kind}": (32,) for kind in ("weight", "bias")}
    shapes |= {
        "transformer.h.0.mlp.c_fc.weight": (32, 128),
        "transformer.h.0.mlp.c_fc.bias": (128,),
    }
    shapes["transformer.h.0.mlp.c_proj.weight"] = (128, 32)
    shapes["transformer.h.0.mlp.c_proj.bias"] = (32,)
    made = write_model(tmp_path / "model", GPT2, shapes)
    shutil.copy(MODULE, made)
    return made


def codes(folder: Path) -> dict[str, str]:
    return {f.code: f.severity for f in audit_model(str(folder)).findings if f.code != "H402"}


def test_our_own_file_is_a_note(folder: Path) -> None:
    assert codes(folder) == {"H301": "note"}


def test_a_changed_file_is_a_strangers(folder: Path) -> None:
    with (folder / MODULE.name).open("a") as file:
        file.write("\nimport os\n")
    assert codes(folder) == {"H301": "warning", "H302": "warning"}


@pytest.mark.parametrize(
    "value", ["other.GroupedGPT2LMHeadModel", "org/repo--modeling_headcount.X", 3]
)
def test_code_from_elsewhere_is_a_strangers(folder: Path, value: Any) -> None:
    config = {**GPT2, "auto_map": {"AutoModel": value}}
    (folder / "config.json").write_text(json.dumps(config))
    assert codes(folder)["H302"] == "warning"
    assert codes(folder).get("H301", "warning") == "warning"


def test_weights_that_have_other_heads_are_found(folder: Path) -> None:
    config = {**GPT2, "num_key_value_heads": 4}
    (folder / "config.json").write_text(json.dumps(config))
    assert codes(folder)["H101"] == "error"
