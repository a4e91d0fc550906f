"""Audits of GGUF files: heads, windows, latent attention, quantised bytes, sets of files."""

import json
from math import prod
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from gguf_files import LLAMA, gguf_bytes, llama_tensors, write_gguf
from gguf_files import key_values as keys
from headcount.arch.gguf.spec import gguf_spec
from headcount.audit import audit_model
from headcount.cli import main
from headcount.model.errors import HeadcountError


def test_a_quantised_model_as_people_read_it(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf")
    result = CliRunner().invoke(main, ["audit", str(path)])
    assert result.exit_code == 0, result.output
    assert "llama" in result.stdout and "Q4_K" in result.stdout
    assert "Findings: none" in result.stdout


def test_counts_are_those_of_the_tensors(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf")
    result = CliRunner().invoke(main, ["audit", str(path), "--format", "json"])
    report = json.loads(result.stdout)
    elements = {n: r * (c[0] if c else 1) for n, (_, (r, *c)) in llama_tensors().items()}
    assert report["totals"]["parameters"] == sum(elements.values()) - 16  # without rope_freqs
    attention = sum(n for name, n in elements.items() if ".attn_" in name and "norm" not in name)
    assert report["totals"]["attention_parameters"] == attention
    assert report["totals"]["cache_bytes_per_token"] == 3 * 2 * 2 * 32 * 2
    assert report["request"]["context"] == 64
    types = {row["type"]: row for row in report["types"]}
    assert types["Q4_K"]["bytes"] == types["Q4_K"]["elements"] // 256 * 144
    assert sum(row["tensors"] for row in report["types"]) == len(llama_tensors())
    audit = audit_model(str(path))
    assert audit.weights_bytes == sum(t.nbytes for t in audit.checkpoint.tensors.values())  # type: ignore[union-attr]
    assert audit.spec.vocab_size == 40 and audit.spec.tie_word_embeddings


def test_norms_and_gates_are_counted_as_the_tensors_have_them(tmp_path: Path) -> None:
    """No key tells of them, so that they are neither missed nor strangers."""
    tensors = llama_tensors()
    for layer in range(3):
        tensors[f"blk.{layer}.attn_q_norm.weight"] = ("F32", (32,))
        tensors[f"blk.{layer}.attn_sinks.weight"] = ("F32", (8,))
    audit = audit_model(str(write_gguf(tmp_path / "m.gguf", LLAMA, tensors)))
    assert audit.findings == ()
    plain = audit_model(str(write_gguf(tmp_path / "plain.gguf")))
    assert audit.spec.attention_parameters == plain.spec.attention_parameters + 3 * (32 + 8)


def test_head_counts_may_differ_by_layer() -> None:
    metadata = keys("deci", 3, attention__head_count=[8, 8, 4], attention__head_count_kv=[2, 0, 4])
    spec = gguf_spec(metadata, "m")
    assert [len(layer.mixers) for layer in spec.layers] == [1, 0, 1]
    assert [la.mixers[0].num_key_value_heads for la in spec.layers if la.mixers] == [2, 4]


def test_latent_attention_caches_its_latent() -> None:
    metadata = keys(
        "deepseek2",
        2,
        attention__head_count_kv=1,
        attention__kv_lora_rank=64,
        attention__q_lora_rank=96,
        attention__key_length=80,
        attention__value_length=64,
        attention__key_length_mla=48,
        attention__value_length_mla=32,
        rope__dimension_count=16,
    )
    spec = gguf_spec(metadata, "m")
    (mixer,) = spec.layers[0].mixers
    assert (mixer.kind, mixer.head_dim, mixer.v_head_dim) == ("latent_attention", 48, 32)
    assert spec.cache_bytes_per_token(bits=16) == 2 * (64 + 16) * 2


def test_layers_that_share_a_cache_keep_none() -> None:
    metadata = keys(
        "gemma3n", 10, attention__sliding_window=9, attention__shared_kv_layers=4,
        attention__head_count_kv=2,
    )  # fmt: skip
    spec = gguf_spec(metadata, "m")
    assert [la.shares_cache_with for la in spec.layers] == [None] * 6 + [5, 5, 5, 4]
    assert spec.cache_bytes_per_token(bits=16) == 1 * 2 * 2 * 32 * 2


def test_an_encoder_keeps_nothing() -> None:
    assert not gguf_spec(keys("some-bert", attention__causal=False), "m").is_cached
    assert not gguf_spec(keys("gemma-embedding"), "m").is_cached


def test_a_window_that_nothing_uses_is_told(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", {**LLAMA, "llama.attention.sliding_window": 9})
    assert (
        "sliding_window is 9, but no layer"
        in CliRunner().invoke(main, ["audit", str(path), "--details"]).stdout
    )


def test_values_that_are_keys_are_not_missed(tmp_path: Path) -> None:
    tensors = llama_tensors()
    del tensors["blk.1.attn_v.weight"]
    audit = audit_model(str(write_gguf(tmp_path / "m.gguf", LLAMA, tensors)))
    assert audit.findings == ()
    assert audit.layer_parts(audit.spec.layers[1]).v == 0
    assert audit.spec.layers[1].mixers[0].state_elements(1) == 2 * 2 * 32
    del tensors["blk.1.attn_k.weight"]
    audit = audit_model(str(write_gguf(tmp_path / "m.gguf", LLAMA, tensors)))
    assert [finding.code for finding in audit.findings] == ["H103"]


def test_active_experts_are_told(tmp_path: Path) -> None:
    metadata = {**LLAMA, "llama.expert_count": 8, "llama.expert_used_count": 2}
    experts = {"blk.0.ffn_up_exps.weight": ("Q4_K", (8, 16, 256))}
    path = write_gguf(tmp_path / "m.gguf", metadata, {**llama_tensors(), **experts})
    audit = audit_model(str(path))
    result = CliRunner().invoke(main, ["audit", str(path), "--details"])
    assert audit.spec.parameters is not None
    assert f"{audit.spec.parameters - 6 * 16 * 256:,} parameters are active" in result.stdout


def test_heads_are_those_of_the_tensors(tmp_path: Path) -> None:
    """Keys of 8 K/V heads beside tensors of 2: one finding, and what two heads cache."""
    path = write_gguf(tmp_path / "m.gguf", {**LLAMA, "llama.attention.head_count_kv": 8})
    audit = audit_model(str(path))
    assert [finding.code for finding in audit.findings] == ["H101"]
    assert "the k weights have 2" in audit.findings[0].message
    assert [la.mixers[0].num_key_value_heads for la in audit.spec.layers] == [2, 2, 2]
    assert audit.spec.cache_bytes_per_token(bits=16) == 3 * 2 * 2 * 32 * 2
    assert CliRunner().invoke(main, ["audit", str(path)]).exit_code == 1


@pytest.mark.parametrize("kind", ["F16", "Q4_K"])
def test_a_norm_per_head_tells_the_query_heads_too(tmp_path: Path, kind: str) -> None:
    """Tensors of 8 query and 4 K/V heads of 64 beside keys of 4 and 2, as CASES has it of folders
    of safetensors."""
    said = {"head_count": 4, "head_count_kv": 2, "key_length": 64, "value_length": 64}
    metadata = keys("qwen3", 3, **{f"attention__{name}": value for name, value in said.items()})
    tensors = llama_tensors()
    for layer in range(3):
        shapes = {"q": (512, 256), "k": (256, 256), "v": (256, 256), "output": (256, 512)}
        for name, shape in shapes.items():
            tensors[f"blk.{layer}.attn_{name}.weight"] = (kind, shape)
        for letter in "qk":
            tensors[f"blk.{layer}.attn_{letter}_norm.weight"] = ("F32", (64,))
    audit = audit_model(str(write_gguf(tmp_path / "m.gguf", metadata, tensors)))
    assert {finding.code for finding in audit.findings} == {"H101"}
    (mixer,) = audit.spec.layers[0].mixers
    heads = (mixer.num_attention_heads, mixer.num_key_value_heads, mixer.head_dim)
    assert heads == (8, 4, 64)
    assert audit.spec.cache_bytes_per_token(bits=16) == 3 * 2 * 4 * 64 * 2


def test_a_matrix_of_another_shape_than_the_keys_is_found(tmp_path: Path) -> None:
    tensors = {**llama_tensors(), "blk.1.attn_output.weight": ("F16", (256, 128))}
    audit = audit_model(str(write_gguf(tmp_path / "m.gguf", LLAMA, tensors)))
    assert [(f.code, f.where) for f in audit.findings] == [("H102", "blk.1.attn_output.weight")]


# As convert_hf_to_gguf.py writes DeepSeek's attention (its `kv_b` is cut and K turned around).
MLA = {
    **{"attention__head_count_kv": 1, "attention__kv_lora_rank": 64, "attention__q_lora_rank": 96},
    **{"attention__key_length": 80, "attention__value_length": 64, "context_length": 64},
    **{"attention__key_length_mla": 48, "attention__value_length_mla": 32},
    "rope__dimension_count": 16,
}


def latent_tensors(layers: int, **changes: tuple[int, ...]) -> dict[str, Any]:
    block: dict[str, tuple[int, ...]] = {
        **{"attn_norm": (256,), "attn_q_a": (96, 256), "attn_q_a_norm": (96,)},
        **{"attn_q_b": (8 * 48, 96), "attn_kv_a_mqa": (64 + 16, 256), "attn_kv_a_norm": (64,)},
        **{"attn_k_b": (8, 64, 32), "attn_v_b": (8, 32, 64), "attn_output": (256, 8 * 32)},
        **{"ffn_up": (512, 256), "ffn_down": (256, 512)},
    }
    block |= changes
    ends = {"token_embd.weight": (40, 256), "output_norm.weight": (256,)}
    inner = {f"blk.{i}.{n}.weight": s for i in range(layers) for n, s in block.items()}
    return {name: ("F32", shape) for name, shape in (ends | inner).items()}


@pytest.mark.parametrize("architecture", ["deepseek2", "glm-dsa", "minicpm3", "kimi-linear"])
def test_halves_of_latent_attention_are_a_matrix_a_head(tmp_path: Path, architecture: str) -> None:
    metadata = keys(architecture, 3, **MLA)
    path = write_gguf(tmp_path / "m.gguf", metadata, latent_tensors(3))
    audit = audit_model(str(path))
    if architecture != "kimi-linear":  # whose other layers are not these
        assert audit.findings == ()
    parts = audit.layer_parts(audit.spec.layers[0])
    assert (parts.k, parts.v) == ((64 + 16) * 256 + 8 * 64 * 32, 8 * 32 * 64)


@pytest.mark.parametrize("shape", [(8 * 64, 32), (8, 64, 32)])
def test_halves_in_one_matrix_are_as_good(tmp_path: Path, shape: tuple[int, ...]) -> None:
    tensors = latent_tensors(2, attn_k_b=shape)
    path = write_gguf(tmp_path / "m.gguf", keys("deepseek2", 2, **MLA), tensors)
    assert audit_model(str(path)).findings == ()


def test_halves_of_other_heads_are_found(tmp_path: Path) -> None:
    tensors = latent_tensors(2, attn_k_b=(4, 64, 32))
    path = write_gguf(tmp_path / "m.gguf", keys("deepseek2", 2, **MLA), tensors)
    (one,) = audit_model(str(path)).findings
    assert (one.code, one.where) == ("H102", "blk.0.attn_k_b.weight")
    assert "8 heads of 64 x 32, in layers 0-1" in one.message


def test_a_set_of_files_is_one_model(tmp_path: Path) -> None:
    tensors = llama_tensors()
    half = len(tensors) // 2
    parts = [dict(list(tensors.items())[:half]), dict(list(tensors.items())[half:])]
    for i, part in enumerate(parts):
        metadata = {**(LLAMA if i == 0 else {}), "split.count": 2, "split.no": i}
        write_gguf(tmp_path / f"m-{i + 1:05}-of-00002.gguf", metadata, part)
    for i in (1, 2):
        audit = audit_model(str(tmp_path / f"m-{i:05}-of-00002.gguf"))
        assert audit.checkpoint is not None and len(audit.checkpoint.tensors) == len(tensors)
        assert audit.findings == ()
    (tmp_path / "m-00002-of-00002.gguf").unlink()
    audit = audit_model(str(tmp_path / "m-00001-of-00002.gguf"))
    assert [finding.code for finding in audit.findings] == ["H201"]
    assert audit.spec.parameters is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"general.architecture": 3}, "general.architecture"),
        ({"general.architecture": "clip"}, "no tower"),
        ({"llama.block_count": 0}, "block_count"),
        ({"llama.block_count": 2**31}, "not a number up to"),
        ({"llama.embedding_length": "wide"}, "not a number"),
        ({"llama.attention.head_count": 7}, "cannot share"),
        ({"llama.attention.head_count": [8, 8]}, "3 layers|cannot"),
        ({"llama.attention.head_count_kv": [1, 2]}, "2 values for 3 layers"),
        ({"llama.attention.key_length": 0}, "no elements"),
        ({"split.count": 3}, "one of 3 files"),
    ],
)
def test_impossible_keys_have_their_message(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    path = write_gguf(tmp_path / "m.gguf", {**LLAMA, **changes})
    with pytest.raises(HeadcountError, match=message):
        audit_model(str(path))


VALUES = (
    st.integers(0, 2**32 - 1) | st.booleans() | st.text(max_size=3) | st.floats(width=32)
    | st.lists(st.integers(0, 9), max_size=4)
)  # fmt: skip
NAMES = [
    "block_count", "embedding_length", "attention.head_count", "attention.head_count_kv",
    "attention.key_length", "attention.value_length", "attention.sliding_window",
    "attention.sliding_window_pattern", "attention.kv_lora_rank", "rope.dimension_count",
    "attention.shared_kv_layers", "nextn_predict_layers", "full_attention_interval",
    "expert_count", "expert_used_count", "context_length", "attention.causal", "rope.freq_base",
    "num_loops", "attention.key_length_swa", "attention.key_length_mla",
]  # fmt: skip


@given(st.dictionaries(st.sampled_from([f"llama.{name}" for name in NAMES]), VALUES, max_size=4))
def test_any_value_gives_a_report_or_a_clean_error(
    tmp_path_factory: pytest.TempPathFactory, changes: dict[str, Any]
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz-keys.gguf"
    path.write_bytes(gguf_bytes({**LLAMA, **changes}, llama_tensors()))
    result = CliRunner().invoke(main, ["audit", str(path), "--explain", "--format", "json"])
    assert result.exit_code in (0, 1, 2), result.exception
    assert result.exception is None or isinstance(result.exception, SystemExit)


def test_an_adapter_is_told_from_a_model(tmp_path: Path) -> None:
    """As convert_lora_to_gguf.py writes one."""
    metadata = {
        **{"general.architecture": "llama", "general.type": "adapter", "adapter.type": "lora"},
        "adapter.lora.alpha": 16.0,
    }
    tensors = {"blk.0.attn_q.weight.lora_a": ("F32", (8, 256))}
    with pytest.raises(HeadcountError, match=r"m\.gguf: this is an adapter .* audit the GGUF file"):
        audit_model(str(write_gguf(tmp_path / "m.gguf", metadata, tensors)))


def test_a_file_that_lacks_layers_tells_no_total(tmp_path: Path) -> None:
    lacking = {name: one for name, one in llama_tensors().items() if not name.startswith("blk.2")}
    audit = audit_model(str(write_gguf(tmp_path / "model.gguf", tensors=lacking)))
    assert "H103" in {finding.code for finding in audit.findings}
    assert audit.spec.parameters is None
    assert audit.spec.parameters_unknown == "the file lacks tensors of its layers"


def test_a_head_of_eagle_3_reads_an_embedding_and_a_hidden_state(tmp_path: Path) -> None:
    """Its tensors as llama.cpp's src/models/eagle3.cpp loads them; the head knows fewer tokens."""
    own = keys("eagle3", 1, attention__head_count_kv=2, context_length=64)
    tensors = {
        **{"fc.weight": ("F16", (256, 768)), "blk.0.hidden_norm.weight": ("F32", (256,))},
        **{
            f"blk.0.attn_{p}.weight": ("F16", (n, 512))
            for p, n in (("q", 256), ("k", 64), ("v", 64))
        },
        **{"blk.0.attn_output.weight": ("F16", (256, 256)), "output.weight": ("F16", (32, 256))},
        **{"output_norm.weight": ("F32", (256,)), "d2t": ("I64", (32,))},
    }
    words = {"tokenizer.ggml.tokens": [f"t{i}" for i in range(40)]}
    file = write_gguf(tmp_path / "eagle3.gguf", {**own, **words}, tensors)
    audit = audit_model(str(file))
    assert audit.findings == ()
    assert audit.attention_parameters == (256 + 64 + 64) * 512 + 256 * 256
    assert audit.spec.cache_bytes_per_token(bits=16) == 2 * 2 * 32 * 2
    assert audit.spec.parameters == sum(prod(shape) for _, shape in tensors.values())
