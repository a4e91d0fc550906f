"""GGUF files of several stacks or of recurrent layers, with their tensors: T5, Whisper, mmproj,
and hybrids. Shapes are those of `create_tensor` in llama.cpp's src/models/ and tools/mtmd/."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from gguf_files import Tensors, gguf_bytes, write_gguf
from headcount.audit import audit_model
from headcount.audit.audited import Audit
from headcount.cli import main

T5: dict[str, Any] = {
    "general.architecture": "t5",
    "t5.context_length": 512,
    "t5.embedding_length": 64,
    "t5.block_count": 2,
    "t5.decoder_block_count": 3,
    "t5.attention.head_count": 4,
    "t5.attention.key_length": 32,
    "t5.attention.value_length": 32,
    "t5.attention.relative_buckets_count": 8,
    "tokenizer.ggml.tokens": ["a", "b"],
}
CLIP: dict[str, Any] = {
    "general.architecture": "clip",
    "clip.has_vision_encoder": True,
    "clip.has_audio_encoder": True,
    "clip.vision.embedding_length": 64,
    "clip.vision.block_count": 2,
    "clip.vision.attention.head_count": 4,
    "clip.audio.embedding_length": 96,
    "clip.audio.block_count": 3,
    "clip.audio.attention.head_count": 3,
    "clip.audio.attention.head_count_kv": 1,
}
WHISPER: dict[str, Any] = {
    "general.architecture": "whisper",
    "whisper.encoder.context_length": 1500,
    "whisper.encoder.embedding_length": 64,
    "whisper.encoder.block_count": 2,
    "whisper.encoder.attention.head_count": 4,
    "whisper.decoder.context_length": 448,
    "whisper.decoder.embedding_length": 64,
    "whisper.decoder.block_count": 3,
    "whisper.decoder.attention.head_count": 4,
}


def attention(prefix: str, hidden: int, q: int, kv: int, o: str) -> dict[str, Any]:
    return {
        f"{prefix}_q.weight": ("F16", (q, hidden)),
        f"{prefix}_k.weight": ("F16", (kv, hidden)),
        f"{prefix}_v.weight": ("F16", (kv, hidden)),
        f"{prefix}_{o}.weight": ("F16", (hidden, q)),
    }


def t5_tensors() -> dict[str, Any]:
    tensors: dict[str, Any] = {"token_embd.weight": ("F16", (2, 64))}
    for i in range(2):
        tensors |= attention(f"enc.blk.{i}.attn", 64, 128, 128, "o")
        tensors[f"enc.blk.{i}.ffn_up.weight"] = ("F16", (96, 64))
    for i in range(3):
        tensors |= attention(f"dec.blk.{i}.attn", 64, 128, 128, "o")
        tensors |= attention(f"dec.blk.{i}.cross_attn", 64, 128, 128, "o")
    tensors["enc.blk.0.attn_rel_b.weight"] = ("F16", (8, 4))
    tensors["dec.blk.0.attn_rel_b.weight"] = ("F16", (8, 4))
    return tensors


def clip_tensors() -> dict[str, Any]:
    tensors: dict[str, Any] = {"mm.0.weight": ("F16", (48, 64)), "mm.2.weight": ("F16", (48, 48))}
    for i in range(2):
        tensors[f"v.blk.{i}.attn_qkv.weight"] = ("F16", (192, 64))
        tensors[f"v.blk.{i}.attn_out.weight"] = ("F16", (64, 64))
        tensors[f"v.blk.{i}.attn_out.bias"] = ("F32", (64,))
    for i in range(3):
        tensors |= attention(f"a.blk.{i}.attn", 96, 96, 32, "out")
    return tensors


def audited(tmp_path: Path, metadata: dict[str, Any], tensors: Tensors) -> Audit:
    audit = audit_model(str(write_gguf(tmp_path / "m.gguf", metadata, tensors)))
    assert audit.findings == ()
    return audit


def report(path: Path, *options: str) -> str:
    run = CliRunner().invoke(main, ["audit", str(path), "--details", *options])
    assert run.exit_code == 0, run.output
    return run.stdout


def test_t5_has_two_stacks(tmp_path: Path) -> None:
    audit = audited(tmp_path, T5, t5_tensors())
    kinds = [(la.stack, la.index, [m.kind for m in la.mixers]) for la in audit.spec.layers]
    assert kinds[:2] == [("encoder", 0, ["attention"]), ("encoder", 1, ["attention"])]
    assert kinds[2:] == [("decoder", i, ["attention", "cross_attention"]) for i in range(3)]
    one = 4 * 64 * 128
    assert audit.attention_parameters == (2 + 3 + 3) * one + 2 * 8 * 4
    assert audit.spec.parameters == (2 + 3 + 3) * one + 2 * 8 * 4 + 2 * 64 + 2 * 96 * 64


def test_t5_keeps_the_encoders_output_and_no_cross_attention(tmp_path: Path) -> None:
    spec = audited(tmp_path, T5, t5_tensors()).spec
    assert spec.cache_bytes(tokens=10) == 10 * 3 * 2 * 4 * 32 * 2
    more = spec.cache_bytes(tokens=10, encoder_tokens=7) - spec.cache_bytes(tokens=10)
    assert more == 7 * 64 * 4  # float32, once for all layers
    text = report(tmp_path / "m.gguf", "--encoder-tokens", "7")
    assert "no K/V of the cross-attention" in text


def test_t5_without_a_decoder_count_has_as_many_layers(tmp_path: Path) -> None:
    metadata = {key: value for key, value in T5.items() if "decoder_block" not in key}
    audit = audit_model(str(write_gguf(tmp_path / "m.gguf", metadata, t5_tensors())))
    assert [la.stack for la in audit.spec.layers] == ["encoder"] * 2 + ["decoder"] * 2
    assert [finding.code for finding in audit.findings] == ["H103"]  # the file holds a third one


def test_an_encoder_alone_keeps_nothing(tmp_path: Path) -> None:
    metadata = {key.replace("t5", "t5encoder"): value for key, value in T5.items()}
    metadata["general.architecture"] = "t5encoder"
    tensors = {n: t for n, t in t5_tensors().items() if not n.startswith("dec.")}
    audit = audited(tmp_path, metadata, tensors)
    assert not audit.spec.is_cached
    assert audit.attention_parameters == 2 * 4 * 64 * 128 + 8 * 4
    assert "decodes nothing" in report(tmp_path / "m.gguf")


def test_an_mmproj_file_holds_towers(tmp_path: Path) -> None:
    audit = audited(tmp_path, CLIP, clip_tensors())
    assert [la.stack for la in audit.spec.layers] == ["vision"] * 2 + ["audio"] * 3
    vision, audio = audit.spec.layers[0], audit.spec.layers[2]
    assert (audit.layer_parts(vision).q, audit.layer_parts(vision).o) == (64 * 64, 64 * 65)
    assert audit.layer_parts(audio).k == 32 * 96
    assert audio.mixers[0].num_key_value_heads == 1
    assert not audit.spec.is_cached
    document = json.loads(report(tmp_path / "m.gguf", "--format", "json"))
    assert {layer["stack"] for layer in document["layers"]} == {"vision", "audio"}


def test_towers_are_held_against_their_keys(tmp_path: Path) -> None:
    metadata = {**CLIP, "clip.audio.attention.head_count_kv": 3}
    audit = audit_model(str(write_gguf(tmp_path / "m.gguf", metadata, clip_tensors())))
    assert {finding.code for finding in audit.findings} == {"H101"}
    metadata = {**CLIP, "clip.vision.block_count": 3}
    audit = audit_model(str(write_gguf(tmp_path / "m.gguf", metadata, clip_tensors())))
    assert "H103" in {finding.code for finding in audit.findings}


def test_whisper_has_two_stacks_by_its_keys(tmp_path: Path) -> None:
    tensors = {"encoder.conv1.weight": ("F16", (64, 80))}
    audit = audited(tmp_path, WHISPER, tensors)
    assert [la.stack for la in audit.spec.layers] == ["encoder"] * 2 + ["decoder"] * 3
    assert audit.spec.max_position_embeddings == 448
    assert audit.spec.cache_bytes(tokens=10, encoder_tokens=5) == 15 * 3 * 2 * 64 * 2


QWEN35: dict[str, Any] = {
    "general.architecture": "qwen35",
    "qwen35.block_count": 4,
    "qwen35.embedding_length": 64,
    "qwen35.context_length": 128,
    "qwen35.attention.head_count": 4,
    "qwen35.attention.head_count_kv": 2,
    "qwen35.attention.key_length": 32,
    "qwen35.attention.value_length": 32,
    "qwen35.ssm.conv_kernel": 4,
    "qwen35.ssm.inner_size": 128,
    "qwen35.ssm.state_size": 32,
    "qwen35.ssm.time_step_rank": 4,
    "qwen35.ssm.group_count": 2,
    "tokenizer.ggml.tokens": ["a", "b"],
}


def qwen_tensors() -> dict[str, Any]:
    tensors: dict[str, Any] = {"token_embd.weight": ("F16", (2, 64))}
    for i in range(3):
        tensors |= {
            f"blk.{i}.attn_norm.weight": ("F32", (64,)),
            f"blk.{i}.attn_qkv.weight": ("F16", (2 * 64 + 128, 64)),
            f"blk.{i}.attn_gate.weight": ("F16", (128, 64)),
            f"blk.{i}.ssm_conv1d.weight": ("F32", (256, 4)),
            f"blk.{i}.ssm_norm.weight": ("F32", (32,)),
            f"blk.{i}.ssm_out.weight": ("F16", (64, 128)),
        }
    tensors |= attention("blk.3.attn", 64, 256, 64, "output")
    tensors["blk.3.attn_output.weight"] = ("F16", (64, 128))  # q is twice as wide: it has a gate
    return tensors


def test_a_hybrid_counts_its_recurrent_layers(tmp_path: Path) -> None:
    audit = audited(tmp_path, QWEN35, qwen_tensors())
    recurrent, attending = audit.spec.layers[0].mixers[0], audit.spec.layers[3].mixers[0]
    assert recurrent.parameters().other == 256 * 64 + 128 * 64 + 256 * 4 + 64 * 128
    assert recurrent.parameters().norm == 32
    assert attending.kind == "attention" and audit.layer_parts(audit.spec.layers[3]).q == 256 * 64
    assert audit.spec.constant_state_bytes() == 3 * 4 * (3 * 256 + 32 * 128)
    text = report(tmp_path / "m.gguf")
    assert "gated delta net" in text and "as llama.cpp keeps it" in text


def test_a_window_says_what_llama_cpp_reserves(tmp_path: Path) -> None:
    metadata = {
        **{"general.architecture": "gpt-oss", "gpt-oss.block_count": 2},
        **{"gpt-oss.embedding_length": 64, "gpt-oss.attention.head_count": 4},
        **{"gpt-oss.attention.sliding_window": 128, "tokenizer.ggml.tokens": ["a", "b"]},
    }
    tensors: dict[str, Any] = {"token_embd.weight": ("F16", (2, 64))}
    for i in range(2):
        tensors |= attention(f"blk.{i}.attn", 64, 64, 64, "output")
    path = write_gguf(tmp_path / "m.gguf", metadata, tensors)
    assert "rounded up to a multiple of 256" in report(path)


BROKEN: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (T5, {"t5.attention.head_count": 0}, "no t5.attention.head_count"),
    (T5, {"t5.decoder_block_count": 2**31}, "not a number up to"),
    (T5, {"t5.embedding_length": 3, "t5.attention.key_length": 0}, "do not go together"),
    (CLIP, {"clip.vision.block_count": 0, "clip.audio.block_count": 0}, "no tower"),
    (CLIP, {"clip.audio.attention.head_count_kv": 2}, "do not go together"),
    (CLIP, {"clip.vision.embedding_length": "x"}, "not a number"),
    (WHISPER, {"whisper.decoder.block_count": 0}, "no whisper.decoder.block_count"),
]


@pytest.mark.parametrize(("metadata", "changes", "message"), BROKEN)
def test_impossible_keys_have_their_message(
    tmp_path: Path, metadata: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    path = write_gguf(tmp_path / "m.gguf", {**metadata, **changes}, {})
    run = CliRunner().invoke(main, ["audit", str(path)])
    assert run.exit_code == 2
    assert message in run.stderr


VALUES = (
    st.integers(0, 2**32 - 1) | st.booleans() | st.text(max_size=3) | st.floats(width=32)
    | st.lists(st.integers(0, 9), max_size=4)
)  # fmt: skip
CASES = [(T5, t5_tensors()), (CLIP, clip_tensors()), (QWEN35, qwen_tensors()), (WHISPER, {})]


@given(st.sampled_from(CASES), st.data())
def test_any_value_gives_a_report_or_a_clean_error(
    tmp_path_factory: pytest.TempPathFactory, case: tuple[dict[str, Any], Tensors], data: Any
) -> None:
    metadata, tensors = case
    names = sorted(name for name in metadata if not name.startswith(("general", "tokenizer")))
    changes = data.draw(st.dictionaries(st.sampled_from(names), VALUES, min_size=1, max_size=3))
    path = tmp_path_factory.getbasetemp() / "fuzz-towers.gguf"
    path.write_bytes(gguf_bytes({**metadata, **changes}, tensors))
    result = CliRunner().invoke(main, ["audit", str(path), "--explain", "--format", "json"])
    assert result.exit_code in (0, 1, 2), result.exception
    assert result.exception is None or isinstance(result.exception, SystemExit)
