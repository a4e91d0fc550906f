"""Audits of folders with weights, for every type: a whole tiny model as transformers saves it.

A freshly saved model has nothing wrong; its parts add up to what the model holds; the headers say
of each layer's attention what the config says and what was built.
"""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from folder_exceptions import (
    ATTENTION_OTHERWISE,
    COUNTED_OTHERWISE,
    DESERVED,
    DESERVED_BY,
    EITHER,
    EXPERTS_OTHERWISE,
    NOT_BUILT,
    NOT_OWN_NAMES,
)
from headcount.arch.read_config import read_config
from headcount.arch.registry import ARCHITECTURES
from headcount.audit import audit_model
from headcount.audit.audited import Audit
from header_edits import Headers, rewrite

pytestmark = pytest.mark.needs_convert
pytest.importorskip("transformers")

SAMPLE = {  # one of each way to store attention
    *("llama", "gpt2", "deepseek_v3", "mixtral", "falcon", "bloom", "opt", "afmoe", "xlnet"),
    *("longcat_flash", "zamba2", "bailing_hybrid", "nemotron_h", "mamba", "deepseek_v4", "zaya"),
    *("inkling_text", "hrm_text", "axk2", "mistral_large4", "reformer", "xlm", "cpmant"),
    *("t5", "longt5", "led", "prophetnet", "encoder-decoder", "seamless_m4t", "bart"),
    *("qwen3_vl", "hunyuan_vl", "deepseek_ocr2", "blip-2", "gemma3", "granite_speech"),
    *("bert", "albert", "deberta", "modernbert", "vit", "clip", "chinese_clip", "wav2vec2"),
}


def jobs() -> list[Any]:
    """Every job; those of the sample are not slow, once per type."""
    seen: set[str] = set()
    found = []
    for model_type, task in importlib.import_module("whole_models").jobs():
        if model_type not in ARCHITECTURES:
            continue
        quick = model_type in SAMPLE and model_type not in seen
        seen.add(model_type)
        marks = () if quick else pytest.mark.slow
        found.append(pytest.param(model_type, task, marks=marks, id=f"{model_type}-{task}"))
    return found


def alarms(audit: Audit, model_type: str) -> list[str]:
    deserved = {*DESERVED, *DESERVED_BY.get(model_type, ())}
    return [
        f"{finding.code} {finding.where}: {finding.message}"
        for finding in audit.findings
        if finding.severity != "note" and finding.code not in deserved
    ]


@pytest.mark.parametrize(("model_type", "task"), jobs())
def test_a_saved_model_is_sound(model_type: str, task: str, tmp_path: Path) -> None:
    whole = importlib.import_module("whole_models")
    if model_type in NOT_BUILT or f"{model_type}:{task}" in NOT_BUILT:
        with pytest.raises(whole.NotBuildableError):
            whole.saved(model_type, task, tmp_path, tries=1)
        return
    shard = "50KB" if len(model_type) % 2 else "50GB"  # half of them in several files
    own = model_type not in NOT_OWN_NAMES
    model = whole.saved(model_type, task, tmp_path, shard=shard, own=own)
    audit = audit_model(str(tmp_path))
    assert alarms(audit, model_type) == []
    parts_add_up(whole, model, audit, model_type)
    if audit.architecture.names.known:
        headers_say_what_the_config_says(audit, tmp_path)
    attention_is_what_was_built(whole, model, audit, model_type)


def parts_add_up(whole: Any, model: Any, audit: Audit, model_type: str) -> None:
    inventory = audit.inventory
    assert inventory is not None and audit.spec.parameters_source == "headers"
    assert inventory.nbytes == audit.weights_bytes
    assert audit.spec.parameters == sum(line.parameters or 0 for line in inventory.by_part)
    buffers = whole.stored_buffers(model)
    either = sum(count for name, count in buffers.items() if name.endswith(EITHER))
    beyond = audit.spec.parameters - whole.parameters(model)
    assert (beyond == either) is (model_type not in COUNTED_OTHERWISE), beyond
    named = audit.architecture.names.known  # else headers are not sorted to parts
    assert inventory.part("attention") == (audit.attention_parameters if named else 0)
    recurrent = (m for la in audit.spec.layers for m in la.mixers if m.kind == "recurrent")
    assert inventory.part("mixer") == sum(mixer.parameters().total for mixer in recurrent)
    experts = inventory.part("experts") - whole.expert_parameters(model)
    either += sum(p.numel() for n, p in model.named_parameters() if n.endswith(EITHER))
    assert (0 <= experts <= either) is (model_type not in EXPERTS_OTHERWISE), experts


def headers_say_what_the_config_says(audit: Audit, folder: Path) -> None:
    """Each part of each mixer; every mixer with parameters was found in the headers."""
    config = json.loads((folder / "config.json").read_text())
    said = read_config(config, "config.json").spec
    assert audit.spec.layers == said.layers
    for layer in said.layers:
        for key, mixer in layer.keyed_mixers():
            if mixer.kind != "recurrent" and mixer.parameters().total:
                assert audit.stored.get(key) == mixer.parameters(), key


def attention_is_what_was_built(whole: Any, model: Any, audit: Audit, model_type: str) -> None:
    layers = [layer for layer in audit.spec.layers if layer.stack != "vision"]
    true = whole.attention(model, model_type, {layer.stack for layer in layers})
    if whole.by_layer(model_type):
        held = [audit.layer_parts(layer).total for layer in layers]
    else:
        held = [parts.total for layer in layers for parts in audit.mixer_parts(layer)]
    held = [count for count in held if count]
    if not audit.architecture.names.known:  # its modules do not stand in one list
        held, true = sorted(held), sorted(true)
    agrees = held == true
    assert agrees is (model_type not in ATTENTION_OTHERWISE), (held, true)


Rename = tuple[str, str]

# What files of well-known models are called beside what transformers 5 writes.
OLDER: dict[str, tuple[str, str, tuple[Rename, ...]]] = {
    "gpt2 without a prefix": ("gpt2", "causal", (("transformer.", ""),)),
    "bloom without a prefix": ("bloom", "causal", (("transformer.", ""),)),
    "llama without a prefix": ("llama", "causal", (("model.", ""),)),
    "bert of TensorFlow": (
        *("bert", "masked"),
        (("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta")),
    ),
    "roberta as bert": ("roberta", "masked", (("roberta.", "bert."),)),
    "opt with a longer prefix": ("opt", "causal", (("model.decoder.", "decoder."),)),
    "llava of transformers 4": (
        *("llava", "image_text"),
        (("model.language_model.", "language_model.model."), ("lm_head", "language_model.lm_head")),
    ),
    "bare gpt2": ("gpt2", "base", ()),
    "bare bert": ("bert", "base", ()),
    "bare llama": ("llama", "base", ()),
    "bare t5": ("t5", "base", ()),
    "bare mixtral": ("mixtral", "base", ()),
    "bare deepseek_v3": ("deepseek_v3", "base", ()),
    "mixtral in memory": ("mixtral", "memory", ()),
    "deepseek_v4 in memory": ("deepseek_v4", "memory", ()),
    "inkling_text in memory": ("inkling_text", "memory", ()),
    "mistral_large4 in memory": ("mistral_large4_text", "memory", ()),
    "bailing_hybrid in memory": ("bailing_hybrid", "memory", ()),
    "exaone in memory": ("exaone", "memory", ()),
    "zaya in memory": ("zaya", "memory", ()),
}


@pytest.mark.parametrize("spelling", OLDER)
def test_other_spellings(spelling: str, tmp_path: Path) -> None:
    """Names without or with another prefix, old norms, bare models, and names in memory."""
    whole = importlib.import_module("whole_models")
    model_type, task, renames = OLDER[spelling]
    own = task != "memory"
    whole.saved(model_type, task if own else "causal", tmp_path, own=own)

    def rename(tensors: Headers) -> None:
        for old, new in renames:
            for name in [name for name in tensors if old in name]:
                tensors[name.replace(old, new, 1)] = tensors.pop(name)

    rewrite(tmp_path / "model.safetensors", rename)
    audit = audit_model(str(tmp_path))
    assert alarms(audit, model_type) == []
    headers_say_what_the_config_says(audit, tmp_path)
    assert audit.inventory is not None
    assert audit.inventory.part("attention") == audit.attention_parameters
