"""A model_type that nothing describes: read by the standard names and marked, or refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from checkpoints import LLAMA_CONFIG, llama_shapes, write_model
from headcount.arch.class_defaults import class_defaults
from headcount.arch.read_config import read_config
from headcount.arch.registry import ARCHITECTURES
from headcount.audit import audit_model
from headcount.cli import main
from headcount.model.errors import UnsupportedModelError
from headcount.sources.catalogue import catalogue, read_entry

STANDARD: dict[str, Any] = {
    "model_type": "novel",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 3,
    "vocab_size": 99,
}
LATENT = {
    "q_lora_rank": None,
    "kv_lora_rank": 8,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(STANDARD))
    return path


def test_the_report_says_so(config: Path) -> None:
    done = CliRunner().invoke(main, ["audit", str(config)])
    assert done.exit_code == 0
    assert "(assumed: novel, parameters unknown" in done.stdout
    assert "nothing describes model_type 'novel'" in done.stdout
    assert "Assumed of novel, whose class may do otherwise" in done.stdout


def test_the_json_says_so(config: Path) -> None:
    done = CliRunner().invoke(main, ["audit", str(config), "--format", "json"])
    document = json.loads(done.stdout)
    assert document["model"]["assumed"] is True
    said = {one["about"]: one for one in document["model"]["assumptions"]}
    assert said["num_key_value_heads"] == {
        **{"about": "num_key_value_heads", "taken": "2", "source": str(config), "doubt": None}
    }
    assert said["head_dim"]["source"] == "derived: hidden_size / num_attention_heads"
    assert said["window"]["source"] == "no key names one"
    assert {m["heads"] for layer in document["layers"] for m in layer["mixers"]} == {"GQA"}
    known = json.loads(CliRunner().invoke(main, ["audit", "gpt2", "--format", "json"]).stdout)
    assert (known["model"]["assumed"], known["model"]["assumptions"]) == (False, [])


def test_strict_refuses_it(config: Path) -> None:
    done = CliRunner().invoke(main, ["audit", str(config), "--strict"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "novel" in done.stderr
    assert CliRunner().invoke(main, ["audit", "gpt2", "--strict"]).exit_code == 0


@pytest.mark.parametrize("more", [{}, LATENT, {"text_config": STANDARD}], ids=str)
def test_standard_names_are_read(more: dict[str, Any]) -> None:
    spec = read_config({**STANDARD, **more}, "config").spec
    assert spec.assumed
    assert len(spec.layers) == 3
    kind = "latent_attention" if more is LATENT else "attention"
    assert {mixer.kind for layer in spec.layers for mixer in layer.mixers} == {kind}


def test_a_known_wrapper_of_an_unknown_language_model_is_assumed() -> None:
    assert read_config({"model_type": "llava", "text_config": STANDARD}, "config").spec.assumed


@pytest.mark.parametrize(("model_type", "tied"), [("novel", False), ("llava", True)])
def test_only_the_whole_config_of_a_stranger_ties_the_embedding(
    model_type: str, tied: bool
) -> None:
    text = {**STANDARD, "model_type": "llama", "tie_word_embeddings": True}
    spec = read_config({"model_type": model_type, "text_config": text}, "config").spec
    assert spec.tie_word_embeddings is tied


@pytest.mark.parametrize("name", ["hidden_size", "num_attention_heads", "num_hidden_layers"])
def test_without_standard_names_it_is_refused(name: str) -> None:
    config = {key: value for key, value in STANDARD.items() if key != name}
    with pytest.raises(UnsupportedModelError, match="novel"):
        read_config(config, "config")


@pytest.mark.parametrize("key", ["mamba_d_state", "ssm_cfg", "linear_attn_config", "rwkv_version"])
def test_keys_of_recurrent_layers_are_refused(key: str) -> None:
    with pytest.raises(UnsupportedModelError, match="novel"):
        read_config({**STANDARD, key: 4}, "config")


def test_a_class_of_transformers_without_a_row_is_refused() -> None:
    """Its defaults and layers are its own: the standard names would not say the truth."""
    types = [t for t in ("detr", "encodec", "resnet", "sam", "vits") if t not in ARCHITECTURES]
    assert types
    for model_type in types:
        assert class_defaults(model_type) is not None
        with pytest.raises(UnsupportedModelError, match=model_type):
            read_config({**STANDARD, "model_type": model_type}, "config")


def test_nothing_of_the_catalogue_is_assumed() -> None:
    configs = [read_entry(row).config for row in catalogue() if row.model_type in ARCHITECTURES]
    assert len(configs) > 100
    assert not any(read_config(config, "config").spec.assumed for config in configs)


def test_what_the_weights_show_is_no_assumption(tmp_path: Path) -> None:
    """8 query and 2 K/V heads, of which the config gives the first number alone."""
    config = {**LLAMA_CONFIG, "model_type": "novel", "architectures": ["NovelForCausalLM"]}
    del config["num_key_value_heads"]
    write_model(tmp_path / "m", config, llama_shapes())
    said = {one.about: one for one in audit_model(str(tmp_path / "m")).spec.assumptions}
    assert (said["num_key_value_heads"].taken, said["head_dim"].taken) == ("2", "4")
    assert said["num_key_value_heads"].source.startswith("weights")
    assert said["attention_parameters"].source == "weights"
    assert said["window"].source == "no key names one"
