"""What is done to a sound folder shows: each damage to the headers brings its finding."""

import importlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headcount.audit import audit_model
from headcount.audit.audited import Audit
from headcount.audit.census import Placed
from header_edits import Headers, rewrite

pytestmark = pytest.mark.needs_convert
pytest.importorskip("transformers")

Damage = Callable[[Headers, Audit], None]

TYPES = (
    *("llama", "gpt2", "bloom", "falcon", "opt", "gpt_neox", "phi3", "qwen3", "gemma3_text"),
    *("olmo2", "cohere2", "gpt_oss", "mixtral", "qwen3_moe", "afmoe", "laguna", "exaone", "doge"),
    *("deepseek_v3", "longcat_flash", "minicpm3", "axk2", "glm_moe_dsa", "mistral_large4_text"),
    *("deepseek_v4", "zaya", "inkling_text", "jamba", "zamba2", "nemotron_h", "qwen3_5_text"),
    *("kimi_linear", "bailing_hybrid", "lfm2", "recurrent_gemma", "falcon_h1", "hrm_text"),
    *("xlnet", "reformer", "cpmant", "xlm", "t5", "bart", "led", "longt5", "whisper", "marian"),
    *("bert", "albert", "deberta-v2", "modernbert", "distilbert", "mpnet", "roberta"),
    *("vit", "wav2vec2", "qwen2_vl", "qwen3_vl", "llava", "mllama", "gemma3", "hunyuan_vl"),
    *("encoder-decoder", "blip-2", "molmo2_text", "moshi", "dory", "xglm", "ctrl", "mpt"),
)
SAMPLE = {
    *("llama", "gpt2", "deepseek_v3", "longcat_flash", "deepseek_v4", "zamba2", "nemotron_h"),
    *("t5", "bert", "albert", "qwen3_vl", "hrm_text", "xlnet", "qwen3_5_text", "qwen3"),
}


def task_of(model_type: str) -> str:
    whole = importlib.import_module("whole_models")
    return next(task for name, task in whole.jobs() if name == model_type)


def first_layer(audit: Audit) -> tuple[Placed, ...]:
    """The attention tensors of the first mixer that has some."""
    assert audit.census is not None
    keys = (
        key
        for layer in audit.spec.layers
        if layer.stack != "vision"
        for key, mixer in layer.keyed_mixers()
        if mixer.kind != "recurrent" and mixer.parameters().k
    )
    return audit.census.layers[next(keys)]


def key_tensor(audit: Audit) -> Placed:
    """The matrix that makes keys: k, or what is fused with it."""
    matrices = [
        item
        for item in first_layer(audit)
        if len(item.tensor.shape) > 1 and item.place.part in ("k", "kv_b", "kv", "qkv", "gqkv")
    ]
    return matrices[-1]


def without_key(headers: Headers, audit: Audit) -> None:
    del headers[key_tensor(audit).tensor.name]


def half_key(headers: Headers, audit: Audit) -> None:
    item = key_tensor(audit)
    dtype, shape = headers[item.tensor.name]
    axis = len(shape) - 1 if item.transposed else 0
    headers[item.tensor.name] = (dtype, [*shape[:axis], shape[axis] // 2, *shape[axis + 1 :]])


def further_layer(headers: Headers, audit: Audit) -> None:
    """A copy of the last layer under the next number."""
    assert audit.census is not None
    prefix, _ = next(iter(audit.census.stacks.lists.items()))
    last = max(int(n) for n in _numbers(headers, prefix))
    stem = f"{prefix}.{last}." if prefix else f"{last}."
    for name in [n for n in headers if n.startswith(stem)]:
        headers[name.replace(stem, stem.replace(str(last), str(last + 1)), 1)] = headers[name]


def without_last_layer(headers: Headers, audit: Audit) -> None:
    assert audit.census is not None
    prefix = next(iter(audit.census.stacks.lists))
    last = max(int(n) for n in _numbers(headers, prefix))
    stem = f"{prefix}.{last}." if prefix else f"{last}."
    for name in [n for n in headers if n.startswith(stem)]:
        del headers[name]


def _numbers(headers: Headers, prefix: str) -> Iterator[str]:
    start = re.escape(f"{prefix}." if prefix else "")
    for name in headers:
        number = re.match(rf"{start}(\d+)\.", name)
        if number is not None:
            yield number[1]


def other_dtype(headers: Headers, audit: Audit) -> None:
    name = key_tensor(audit).tensor.name
    dtype, shape = headers[name]
    headers[name] = ("BF16" if dtype == "F32" else "F32", shape)


def all_other_dtype(headers: Headers, audit: Audit) -> None:
    headers |= {name: ("F16", shape) for name, (_, shape) in headers.items()}


def stranger(headers: Headers, audit: Audit) -> None:
    """An adapter beside a projection."""
    base = key_tensor(audit).tensor.name.removesuffix(".weight")
    headers[f"{base}.lora_A.weight"] = ("BF16", [4, 24])


DAMAGES: dict[str, tuple[Damage, set[str]]] = {
    "no-key": (without_key, {"H103"}),
    "half-key": (half_key, {"H101", "H102"}),
    "further-layer": (further_layer, {"H103"}),
    "no-last-layer": (without_last_layer, {"H103"}),
    "float32-key": (other_dtype, {"H601"}),
    "all-float16": (all_other_dtype, {"H106"}),
    "stranger": (stranger, {"H102", "H203"}),
}


# What cannot be found: XLM's attentions are no modules under which a stranger could stand.
UNSEEN = {"xlm": {"stranger"}}


@pytest.mark.parametrize(
    "model_type",
    [pytest.param(t, marks=() if t in SAMPLE else pytest.mark.slow) for t in TYPES],
)
def test_each_damage_is_found(model_type: str, tmp_path: Path) -> None:
    whole = importlib.import_module("whole_models")
    model = whole.saved(model_type, task_of(model_type), tmp_path)
    file = tmp_path / "model.safetensors"
    sound = audit_model(str(tmp_path))
    before = {(finding.code, finding.where) for finding in sound.findings}
    silent = []
    for name in DAMAGES.keys() - UNSEEN.get(model_type, set()):
        damage, codes = DAMAGES[name]
        whole.save(model, tmp_path)
        rewrite(file, lambda headers, damage=damage: damage(headers, sound))  # type: ignore[misc]
        found = audit_model(str(tmp_path)).findings
        new = {finding.code for finding in found if (finding.code, finding.where) not in before}
        if not codes & new:
            silent.append(f"{name}: {sorted(new)}")
    assert silent == []
