"""Each rule: a checkpoint that makes it speak, and a sound one that does not."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkpoints import LLAMA_CONFIG, llama_shapes, write_model, write_sharded
from headcount.audit import audit_model
from headcount.audit.rules.registry import RULES
from headcount.report.report import Finding

Shapes = dict[str, tuple[int, ...]]
K_PROJ = "model.layers.{}.self_attn.k_proj.weight"


def findings(folder: Path) -> list[tuple[str, str]]:
    return [(finding.code, finding.severity) for finding in audit_model(str(folder)).findings]


def test_a_sound_checkpoint_has_no_findings(tmp_path: Path) -> None:
    assert findings(write_model(tmp_path / "1", LLAMA_CONFIG, llama_shapes())) == []
    assert findings(write_sharded(tmp_path / "2", LLAMA_CONFIG, llama_shapes())) == []


def other_heads(shapes: Shapes) -> Shapes:
    return llama_shapes({**LLAMA_CONFIG, "num_key_value_heads": 4})


def other_head_dim(shapes: Shapes) -> Shapes:
    return llama_shapes({**LLAMA_CONFIG, "head_dim": 8})


def more_layers(shapes: Shapes) -> Shapes:
    return llama_shapes({**LLAMA_CONFIG, "num_hidden_layers": 4})


def fewer_layers(shapes: Shapes) -> Shapes:
    return llama_shapes({**LLAMA_CONFIG, "num_hidden_layers": 2})


def without_a_projection(shapes: Shapes) -> Shapes:
    return {name: shape for name, shape in shapes.items() if name != K_PROJ.format(1)}


def larger_vocabulary(shapes: Shapes) -> Shapes:
    return llama_shapes({**LLAMA_CONFIG, "vocab_size": 64})


def smaller_vocabulary(shapes: Shapes) -> Shapes:
    return llama_shapes({**LLAMA_CONFIG, "vocab_size": 39})


def wider(shapes: Shapes) -> Shapes:
    return llama_shapes({**LLAMA_CONFIG, "hidden_size": 40, "head_dim": 4})


def without_a_head(shapes: Shapes) -> Shapes:
    return {name: shape for name, shape in shapes.items() if name != "lm_head.weight"}


def with_an_adapter(shapes: Shapes) -> Shapes:
    return {**shapes, "model.layers.0.self_attn.q_proj.lora_A.default.weight": (4, 32)}


CASES: list[tuple[str, str, Callable[[Shapes], Shapes]]] = [
    ("H101", "error", other_heads),
    ("H102", "error", other_head_dim),
    ("H103", "warning", more_layers),
    ("H103", "error", fewer_layers),
    ("H103", "error", without_a_projection),
    ("H104", "error", larger_vocabulary),
    ("H104", "error", smaller_vocabulary),
    ("H105", "error", wider),
    ("H107", "error", without_a_head),
    ("H203", "warning", with_an_adapter),
]


@pytest.mark.parametrize(("code", "severity", "change"), CASES, ids=[c[2].__name__ for c in CASES])
def test_a_changed_tensor_is_found(
    tmp_path: Path, code: str, severity: str, change: Callable[[Shapes], Shapes]
) -> None:
    folder = write_model(tmp_path, LLAMA_CONFIG, change(llama_shapes()))
    found = findings(folder)
    assert (code, severity) in found
    assert {one for one, level in found if level != "note"} == {code}, "one fault, one finding"


@pytest.mark.parametrize("shape", [(), (1024,), (32, 8, 4)])
def test_a_projection_that_is_no_matrix(tmp_path: Path, shape: tuple[int, ...]) -> None:
    shapes = {**llama_shapes(), "model.layers.0.self_attn.q_proj.weight": shape}
    assert ("H102", "error") in findings(write_model(tmp_path, LLAMA_CONFIG, shapes))


def test_a_missing_embedding_is_not_made_up_for_by_the_head(tmp_path: Path) -> None:
    shapes = {name: shape for name, shape in llama_shapes().items() if "embed" not in name}
    assert ("H113", "error") in findings(write_model(tmp_path, LLAMA_CONFIG, shapes))


def test_a_stored_head_does_for_a_tied_embedding(tmp_path: Path) -> None:
    """transformers 5.24 ties either to the other (tests/convert/test_tied_heads.py)."""
    shapes = {name: shape for name, shape in llama_shapes().items() if "embed" not in name}
    tied = {**LLAMA_CONFIG, "tie_word_embeddings": True}
    assert findings(write_model(tmp_path / "1", tied, shapes)) == []
    base = {**tied, "architectures": ["LlamaModel"]}  # has no head to take it from
    assert ("H113", "error") in findings(write_model(tmp_path / "2", base, shapes))


def test_a_classifier_needs_no_output_head(tmp_path: Path) -> None:
    config = {**LLAMA_CONFIG, "architectures": ["LlamaForSequenceClassification"]}
    shapes = {**without_a_head(llama_shapes()), "score.weight": (2, 32)}
    assert findings(write_model(tmp_path, config, shapes)) == []


def test_numbers_outside_a_list_of_layers_are_no_layers(tmp_path: Path) -> None:
    odd = {"projector.proj.7.weight": (4, 4), f"model.layers.{'1' * 5000}.self_attn.q_proj.x": (1,)}
    shapes = {**llama_shapes(), "model.layers.\u0663.x": (1,), **odd}
    assert "H103" not in {code for code, _ in findings(write_model(tmp_path, LLAMA_CONFIG, shapes))}


def test_shards_without_an_index_are_not_passed_over(tmp_path: Path) -> None:
    folder = write_sharded(tmp_path, LLAMA_CONFIG, llama_shapes())
    (folder / "model.safetensors.index.json").unlink()
    assert ("H215", "error") in findings(folder)


def test_the_weights_decide_heads_and_memory(tmp_path: Path) -> None:
    """4 K/V heads stored, 2 in the config: sizes follow the weights, and it says so."""
    folder = write_model(tmp_path, LLAMA_CONFIG, other_heads({}))
    audit = audit_model(str(folder))
    finding: Finding = audit.findings[0]
    assert (finding.code, finding.where) == ("H101", "layers 0-2")
    assert "says num_key_value_heads 2" in finding.message
    assert "have 4" in finding.message
    # 3 layers x (K and V) x 4 heads x 4 elements x 2 bytes
    assert audit.spec.cache_bytes_per_token() == 3 * 2 * 4 * 4 * 2
    assert audit.spec.origins["num_key_value_heads"].source.startswith("weights")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_type": "x"}, "makes num_key_value_heads 8 (derived: num_attention_heads)"),
        ({"model_type": "x", "n_kv_heads": 2}, "says n_kv_heads 2"),
        ({}, "makes num_key_value_heads 8 (derived: num_attention_heads)"),
        (
            {"model_type": "mistral", "architectures": ["MistralForCausalLM"]},
            "makes num_key_value_heads 8 (class default of MistralConfig)",
        ),
    ],
    ids=str,
)
def test_a_mismatch_names_the_key_that_stands_in_the_file(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    """4 K/V heads stored; none of num_key_value_heads is in the file."""
    given = {**LLAMA_CONFIG, **changes}
    config = {key: value for key, value in given.items() if key != "num_key_value_heads"}
    audit = audit_model(str(write_model(tmp_path, config, other_heads({}))))
    (finding,) = [one for one in audit.findings if one.code == "H101"]
    assert f"{said}, the k weights have 4" in finding.message


def test_the_width_of_heads_is_that_of_the_weights(tmp_path: Path) -> None:
    """Qwen3 weights of 8 heads beside a config of 4, whose heads alone are not hidden_size wide."""
    config = {**LLAMA_CONFIG, "model_type": "qwen3", "num_attention_heads": 4, "head_dim": 4}
    norms = {f"model.layers.{i}.self_attn.{x}_norm.weight": (4,) for i in range(3) for x in "qk"}
    folder = write_model(tmp_path, config, {**llama_shapes(), **norms})
    assert "H101" in {code for code, _ in findings(folder)}
    assert "H404" not in {code for code, _ in findings(folder)}
    (folder / "model.safetensors").unlink()
    alone = audit_model(str(folder / "config.json"))
    assert "H404" in {finding.code for finding in alone.findings}


def test_head_dim_follows_the_weights(tmp_path: Path) -> None:
    audit = audit_model(str(write_model(tmp_path, LLAMA_CONFIG, other_head_dim({}))))
    assert {mixer.head_dim for layer in audit.spec.layers for mixer in layer.mixers} == {8}
    assert audit.spec.cache_bytes_per_token() == 3 * 2 * 2 * 8 * 2


def test_dtype(tmp_path: Path) -> None:
    assert findings(write_model(tmp_path, LLAMA_CONFIG, llama_shapes(), "F32")) == [
        ("H106", "warning")
    ]


def test_a_stored_copy_of_a_tied_head_is_noted_and_not_counted(tmp_path: Path) -> None:
    tied = {**LLAMA_CONFIG, "tie_word_embeddings": True}
    whole = audit_model(str(write_model(tmp_path / "1", tied, llama_shapes())))
    (note,) = whole.findings
    assert (note.code, note.severity) == ("H107", "note")
    assert "as if both held the same values, which --scan finds out" in (note.hint or "")
    bare = audit_model(str(write_model(tmp_path / "2", tied, without_a_head(llama_shapes()))))
    assert bare.findings == ()
    assert whole.spec.parameters == bare.spec.parameters


def test_missing_shard(tmp_path: Path) -> None:
    folder = write_sharded(tmp_path, LLAMA_CONFIG, llama_shapes())
    (folder / "model-00001-of-00002.safetensors").unlink()
    audit = audit_model(str(folder))
    assert [f.code for f in audit.findings if f.severity == "error"] == ["H201"]
    assert audit.weights_bytes is None
    assert audit.spec.parameters_source != "headers"


def test_stale_index(tmp_path: Path) -> None:
    folder = write_sharded(tmp_path, LLAMA_CONFIG, llama_shapes())
    path = folder / "model.safetensors.index.json"
    index: dict[str, Any] = json.loads(path.read_text())
    index["metadata"]["total_size"] += 2
    path.write_text(json.dumps(index))
    assert findings(folder) == [("H202", "warning")]
    index["metadata"]["total_size"] -= 2 + 64
    del index["weight_map"]["model.layers.0.input_layernorm.weight"]
    path.write_text(json.dumps(index))
    assert findings(folder) == [("H202", "warning")]


def test_one_shard_alone_is_not_blamed_for_the_others(tmp_path: Path) -> None:
    folder = write_sharded(tmp_path, LLAMA_CONFIG, llama_shapes())
    assert findings(folder / "model-00002-of-00002.safetensors") == []


def test_old_buffers_are_neither_parameters_nor_unexpected(tmp_path: Path) -> None:
    buffers = {"model.layers.0.self_attn.rotary_emb.inv_freq": (2,)}
    plain = audit_model(str(write_model(tmp_path / "1", LLAMA_CONFIG, llama_shapes())))
    old = audit_model(str(write_model(tmp_path / "2", LLAMA_CONFIG, llama_shapes() | buffers)))
    assert old.findings == ()
    assert old.spec.parameters == plain.spec.parameters


def test_quantised_weights_are_counted_from_the_config(tmp_path: Path) -> None:
    shapes = llama_shapes()
    packed = {
        (name.replace("weight", "qweight") if "_proj" in name else name): shape
        for name, shape in shapes.items()
    }
    plain = audit_model(str(write_model(tmp_path / "1", LLAMA_CONFIG, shapes)))
    audit = audit_model(str(write_model(tmp_path / "2", LLAMA_CONFIG, packed)))
    assert audit.findings == ()
    assert audit.attention_parameters == plain.attention_parameters


def test_codes_are_unique_and_documented() -> None:
    docs = (Path(__file__).parents[3] / "docs" / "findings.md").read_text("utf-8")
    codes = [rule.code for rule in RULES]
    assert len(set(codes)) == len(codes) == 84
    for rule in RULES:
        _, found, section = docs.partition(f"## {rule.code} {rule.name}\n")
        assert found, rule.code
        assert "Why: " in section.partition("\n## ")[0], rule.code
        assert rule.severity in section.partition("\n## ")[0].lower()


def claim(folder: Path, **claims: int) -> None:
    path = folder / "model.safetensors.index.json"
    index: dict[str, Any] = json.loads(path.read_text())
    index["metadata"] |= claims
    path.write_text(json.dumps(index))


def test_an_index_that_claims_other_parameters(tmp_path: Path) -> None:
    folder = write_sharded(tmp_path, LLAMA_CONFIG, llama_shapes())
    held = audit_model(str(folder)).spec.parameters
    assert held
    claim(folder, total_parameters=held)
    assert findings(folder) == []
    claim(folder, total_parameters=2 * held)
    assert findings(folder) == [("H202", "warning")]
    assert f"total_parameters says {2 * held:,}" in audit_model(str(folder)).findings[0].message


def test_an_index_without_its_shards_is_held_against_the_config(tmp_path: Path) -> None:
    folder = write_sharded(tmp_path, LLAMA_CONFIG, llama_shapes())
    for shard in folder.glob("*.safetensors"):
        shard.unlink()
    assert {code for code, _ in findings(folder)} == {"H201"}
    claim(folder, total_size=12345)
    assert ("H202", "warning") in findings(folder)
    # As in a public index of an 8.3 B whose config says bfloat16, and whose files hold float32.
    parameters = audit_model(str(folder)).spec.parameters
    assert parameters
    claim(folder, total_size=4 * parameters)
    assert ("H202", "note") in findings(folder)


QWEN3 = {**LLAMA_CONFIG, "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}


def qwen3_shapes(config: dict[str, Any]) -> Shapes:
    layers = range(config["num_hidden_layers"])
    norm = "model.layers.{}.self_attn.{}_norm.weight"
    return llama_shapes(config) | {
        norm.format(i, x): (config["head_dim"],) for i in layers for x in "qk"
    }


@pytest.mark.parametrize(("heads", "kv"), [(8, 4), (16, 4), (8, 2), (4, 4)])
def test_norms_tell_the_query_heads_of_the_weights(tmp_path: Path, heads: int, kv: int) -> None:
    """A config of 4 query and 2 K/V heads beside such weights: all counts are the weights'."""
    config = {**QWEN3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
    stored = {**config, "num_attention_heads": heads, "num_key_value_heads": kv}
    audit = audit_model(str(write_model(tmp_path, config, qwen3_shapes(stored))))
    assert {finding.code for finding in audit.findings if finding.severity != "note"} == {"H101"}
    (mixer,) = {mixer for layer in audit.spec.layers for mixer in layer.mixers}
    assert (mixer.num_attention_heads, mixer.num_key_value_heads, mixer.head_dim) == (heads, kv, 8)
    said = " ".join(finding.message for finding in audit.findings)
    assert (f"num_attention_heads 4, the q weights have {heads}" in said) == (heads != 4)
    assert (f"num_key_value_heads 2, the k weights have {kv}" in said) == (kv != 2)
