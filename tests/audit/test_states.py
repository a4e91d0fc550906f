"""What is said of types with state of their own, beside what test_truth.py compares: what grows and
what does not, dtypes, configs that nest another, and weights that say the same."""

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from checkpoints import write_safetensors
from config_specs import read_spec
from headcount.arch.registry import ARCHITECTURES
from headcount.audit import audit_model
from headcount.audit.audit_report import audit_report
from headcount.model.sizes import AuditRequest
from headcount.model.spec import ModelSpec
from state_configs import WRAPPERS, state_config

pytestmark = pytest.mark.needs_convert


@pytest.fixture(scope="module")
def truth() -> ModuleType:
    return importlib.import_module("states_truth")


def spec_of(model_type: str) -> ModelSpec:
    return read_spec(state_config(model_type, 0), "config.json")


def test_recurrent_states_stay_float32() -> None:
    """A smaller cache dtype shrinks keys, values and convolutions only."""
    spec = spec_of("jamba")
    wide, narrow = (spec.constant_state_bytes(bits=bits) for bits in (32, 16))
    fixed = [state for layer in spec.layers for m in layer.mixers for state in m.states]
    recurrent = sum(4 * state.fixed for state in fixed if state.bits == 32)
    assert recurrent
    assert narrow - recurrent == (wide - recurrent) / 2


@pytest.mark.parametrize("model_type", ["mamba", "rwkv", "lfm2"])
def test_constant_state_is_all_that_does_not_grow(model_type: str) -> None:
    spec = spec_of(model_type)
    assert spec.cache_bytes(tokens=10**6) == (
        spec.constant_state_bytes() + 10**6 * spec.cache_bytes_per_token()
    )


def test_the_report_tells_constant_state_from_what_grows() -> None:
    audit = audit_model("ai21labs/Jamba-v0.1")
    totals: Any = audit_report(audit, AuditRequest(context=1000, batch_size=2)).document["totals"]
    assert totals["constant_state_bytes"] == audit.spec.constant_state_bytes(batch_size=2)
    growing = 2 * 1000 * totals["cache_bytes_per_token"]
    assert totals["cache_bytes"] == totals["constant_state_bytes"] + growing


def test_every_wrapper_is_tried() -> None:
    assert all(ARCHITECTURES[name].config.text for name in WRAPPERS)


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_nested_language_model_is_read_alike(wrapper: str) -> None:
    text = state_config(WRAPPERS[wrapper], 0)
    nested = read_spec({"model_type": wrapper, "text_config": text}, "config.json")
    assert nested.layers == read_spec(text, "config.json").layers


# Its class's own defaults lack the fields of its indexer, without which it cannot be built.
@pytest.mark.parametrize("wrapper", sorted(set(WRAPPERS) - {"qwen4_exp"}))
def test_a_wrapper_s_defaults_are_those_of_transformers(wrapper: str) -> None:
    """A config that says nothing is that of the class's defaults, written out."""
    transformers = importlib.import_module("transformers")
    written = json.loads(transformers.CONFIG_MAPPING[wrapper]().to_json_string(use_diff=False))
    bare = read_spec({"model_type": wrapper}, "config.json")
    assert bare.layers == read_spec(written, "config.json").layers


def test_zyphra_s_own_keys_are_read_as_the_class_does() -> None:
    """Not at all: it takes its default of 8 heads, though the head width in the file makes 112."""
    audit = audit_model("Zyphra/Zamba2-7B")
    assert audit.spec.layers[0].mixers[0].num_attention_heads == 8
    assert audit.spec.parameters == 7_326_532_760  # as transformers builds it from this file


@pytest.mark.parametrize(
    "model_type",
    ["jamba", "nemotron_h", "qwen3_next", "kimi_linear", "glm_moe_dsa", "lfm2", "zamba2"],
)
def test_saved_weights_say_the_same(model_type: str, truth: ModuleType, tmp_path: Path) -> None:
    """Headers beside recurrent layers, indexers and gates bring no error, and the same count."""
    torch = importlib.import_module("torch")
    truth.build(state_config(model_type, 0), torch.bfloat16).save_pretrained(tmp_path)
    audit = audit_model(str(tmp_path))
    odd_by_design = ("H4", "H5")  # tiny heads, and token ids beyond a tiny vocabulary
    assert [
        finding
        for finding in audit.findings
        if finding.severity != "note" and not finding.code.startswith(odd_by_design)
    ] == []
    assert audit.attention_parameters == audit.spec.attention_parameters


def test_a_missing_layer_without_attention_is_found(tmp_path: Path) -> None:
    """RWKV's layers hold no tensor of an attention, and are numbered all the same."""
    config = {"model_type": "rwkv", "hidden_size": 32, "num_hidden_layers": 3, "vocab_size": 64}
    (tmp_path / "config.json").write_text(json.dumps(config))
    names = [f"rwkv.blocks.{index}.attention.key.weight" for index in (0, 2)]
    write_safetensors(tmp_path / "model.safetensors", dict.fromkeys(names, (32, 32)))
    found = [f for f in audit_model(str(tmp_path)).findings if f.code == "H103"]
    assert [f.where for f in found] == ["decoder layers 1"]
