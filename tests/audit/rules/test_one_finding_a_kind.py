"""A fault that is in every layer or shard is one finding, which says how many there are."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkpoints import LLAMA_CONFIG, llama_shapes, typed, write_model, write_sharded, write_typed
from headcount.audit import audit_model
from headcount.audit.rules.rule import run
from headcount.audit.rules.scanned import RULES as SCAN_RULES
from headcount.audit.rules.scanned import ScanFacts, TensorScan

LAYERS = 6
DEEP = {**LLAMA_CONFIG, "num_hidden_layers": LAYERS}
Tensors = dict[str, tuple[str, tuple[int, ...]]]


def deep() -> Tensors:
    return typed(llama_shapes(DEEP))


def in_each_layer(inside: str, dtype: str, shape: tuple[int, ...]) -> Tensors:
    return {f"model.layers.{i}.{inside}": (dtype, shape) for i in range(LAYERS)}


FAULTS: list[tuple[str, dict[str, Any], Tensors]] = [
    ("H102", {"head_dim": 8}, {}),
    ("H108", {}, in_each_layer("self_attn.q_proj.bias", "BF16", (32,))),
    ("H108", {"attention_bias": True}, {}),
    ("H110", {"intermediate_size": 64}, {}),
    ("H203", {}, in_each_layer("self_attn.q_proj.lora_A.weight", "BF16", (4, 32))),
    ("H209", {}, in_each_layer("a/b", "BF16", (4,))),
    ("H604", {}, in_each_layer("mlp.gate_proj.weight", "I8", (48, 32))),
    ("H608", {}, in_each_layer("mlp.gate_proj.qweight", "I32", (4, 48))),
]


@pytest.mark.parametrize(("code", "changes", "tensors"), FAULTS)
def test_a_fault_of_every_layer(
    tmp_path: Path, code: str, changes: dict[str, Any], tensors: Tensors
) -> None:
    write_typed(tmp_path, {**DEEP, **changes}, deep() | tensors)
    counts = Counter(finding.code for finding in audit_model(str(tmp_path)).findings)
    assert counts[code] == 1
    assert set(counts.values()) == {1}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"head_dim": 4, "num_attention_heads": 4, "num_key_value_heads": 1},
            "says head_dim 4, the weights have 8, or 8 heads and 2 K/V heads of 4: the shapes do"
            " not say which",
        ),
        ({"head_dim": 8}, "the weights have 4, or 4 heads and 1 K/V head of 8: the shapes"),
        ({"head_dim": 5}, "says head_dim 5, the weights have 4"),
    ],
)
def test_a_width_is_heads_times_head_dim(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    """Of the projections alone nobody knows which of both the config has wrong."""
    write_typed(tmp_path, {**DEEP, **changes}, deep())
    (found,) = (one for one in audit_model(str(tmp_path)).findings if one.code == "H102")
    assert said in found.message and ("shapes" in found.message) == ("shapes" in said)


def test_norms_of_a_head_say_which(tmp_path: Path) -> None:
    norms = in_each_layer("self_attn.q_norm.weight", "BF16", (4,))
    norms |= in_each_layer("self_attn.k_norm.weight", "BF16", (4,))
    config = {**DEEP, "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "head_dim": 8}
    write_typed(tmp_path, config, deep() | norms)
    (found,) = (one for one in audit_model(str(tmp_path)).findings if one.code == "H102")
    assert "the weights have 4" in found.message and " or " not in found.message


def sharded(tmp_path: Path) -> Path:
    return write_sharded(tmp_path, DEEP, llama_shapes(DEEP), 4)


def every_tensor_twice(folder: Path) -> None:
    for number in (1, 2):
        write_typed(folder, DEEP, deep(), f"model-0000{number}-of-00004.safetensors")


def another_format(folder: Path) -> None:
    write_typed(folder, DEEP, deep(), metadata={"format": "x"})
    names = deep().keys()
    parts = {name: f"model-0000{1 + number % 4}-of-00004.safetensors"
             for number, name in enumerate(names)}  # fmt: skip
    for file in {*parts.values()}:
        own = {name: value for name, value in deep().items() if parts[name] == file}
        write_typed(folder, DEEP, own, file, metadata={"format": "x"})
    index = folder / "model.safetensors.index.json"
    said = {"metadata": {"total_size": 1}, "weight_map": parts}
    index.write_text(json.dumps(said))
    (folder / "model.safetensors").unlink()


def all_shards_missing_but_one(folder: Path) -> None:
    for number in (1, 2, 3):
        (folder / f"model-0000{number}-of-00004.safetensors").unlink()


@pytest.mark.parametrize(
    ("code", "damage"),
    [("H201", all_shards_missing_but_one), ("H204", every_tensor_twice), ("H210", another_format)],
)
def test_a_fault_of_every_shard(tmp_path: Path, code: str, damage: Callable[[Path], None]) -> None:
    folder = sharded(tmp_path)
    damage(folder)
    found = [finding for finding in audit_model(str(folder)).findings if finding.code == code]
    assert len(found) == 1
    assert any(sign in found[0].message for sign in ("such", "more shards"))


def test_a_fault_of_every_value() -> None:
    """H701 to H703: the first by its name, and how many layers have it."""
    names = [f"model.layers.{i}.mlp.{m}_proj.weight" for i in range(9) for m in ("up", "down")]
    faulty = tuple(
        TensorScan(name=name, elements=8, nans=3, infinities=2, zero=True) for name in names
    )
    found = run(SCAN_RULES, ScanFacts(tensors=faulty, layers=()))
    assert [finding.code for finding in found] == ["H701", "H702", "H703"]
    assert {finding.where for finding in found} == {names[0]}
    for finding in found:
        assert finding.message.endswith("(18 such tensors, in layers 0-8)")
    assert "3 of 8 values are NaN" in found[0].message


def test_one_alone_is_not_counted(tmp_path: Path) -> None:
    write_model(tmp_path, LLAMA_CONFIG, {**llama_shapes(), "model.a/b": (4,)})
    (found,) = (one for one in audit_model(str(tmp_path)).findings if one.code == "H209")
    assert found.message == "is no name of a parameter"


def test_token_ids_of_one_key_are_one_finding(tmp_path: Path) -> None:
    config = {**LLAMA_CONFIG, "eos_token_id": [*range(100, 150)]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (found,) = (one for one in audit_model(str(tmp_path)).findings if one.code == "H504")
    assert found.message.startswith("100, vocab_size is 40 (50 such ids")
