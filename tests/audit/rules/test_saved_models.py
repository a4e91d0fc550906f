"""All rules over small models of every type, as transformers saves them: no false alarms."""

import importlib
from pathlib import Path
from typing import Any

import pytest

from headcount.arch.registry import ARCHITECTURES
from headcount.audit import audit_model
from headcount.audit.audited import Audit
from tiny_configs import TYPES, tiny_config

pytestmark = pytest.mark.needs_convert

SAMPLE = {"llama", "gpt2", "deepseek_v3", "mixtral", "t5", "bert", "qwen2_vl", "falcon"}
# Warnings that these configs deserve: heads of 12, contexts of 33 under a class's default YaRN,
# and token ids of classes with large vocabularies.
DESERVED = {"H402", "H416", "H504"}
MODELS = [
    pytest.param(name, marks=() if name in SAMPLE else pytest.mark.slow, id=name) for name in TYPES
]


def saved(folder: Path, model_type: str, seed: int) -> Audit:
    """The audit of what transformers saves for a random config; the values are of no account."""
    truth: Any = importlib.import_module("transformers_truth")
    read_as = ARCHITECTURES[model_type].config.read_as
    model = truth.build_on_meta(tiny_config(model_type, seed), read_as=read_as)
    model = model.to_empty(device="cpu")
    model.tie_weights()
    model.save_pretrained(folder)
    return audit_model(str(folder))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("model_type", MODELS)
def test_a_saved_model_is_sound(tmp_path: Path, model_type: str, seed: int) -> None:
    audit = saved(tmp_path, model_type, seed)
    alarms = {f.code for f in audit.findings if f.severity != "note"} - DESERVED
    assert alarms <= ({"H106"} if audit.spec.dtype is None else set()), audit.findings
    assert audit.inventory is not None
    assert audit.spec.parameters_source == "headers"
    assert audit.inventory.part("attention") == audit.attention_parameters
    assert audit.inventory.nbytes == audit.weights_bytes
