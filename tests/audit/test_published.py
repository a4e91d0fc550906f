"""Figures that others published, typed from their source: none was computed by headcount."""

import pytest

from headcount.audit import audit_model

# KV-cache bytes per token at 16 bit: start-up logs and documentation of serving engines.
BYTES_PER_TOKEN = {
    "gpt2": 36_864,
    "opt-125m": 36_864,
    "opt-2.7b": 327_680,
    "llama-3-8b": 131_072,
    "llama-3-70b": 327_680,
    "qwen3-8b": 147_456,
    "qwen3-32b": 262_144,
    "qwen2.5-7b": 57_344,
    "qwen2.5-0.5b": 12_288,
    "qwen3-30b-a3b": 98_304,
    "qwen3-235b-a22b": 192_512,
    "mistral-small-24b": 163_840,
    "deepseek-v3": 70_272,
    "deepseek-r1": 70_272,
    "kimi-k2": 70_272,
}

# heads, K/V heads, head_dim: model cards and papers.
HEADS = {
    "gpt2": (12, 12, 64),  # Radford et al. 2019: 12 layers of width 768
    "llama-2-70b": (64, 8, 128),  # arXiv 2307.09288, table 1 and appendix A.2.1
    "llama-3-8b": (32, 8, 128),  # arXiv 2407.21783, table 3
    "llama-3.1-405b": (128, 8, 128),  # the same
    "falcon-7b": (71, 1, 64),  # arXiv 2311.16867, table 16
    "gemma-7b": (16, 16, 256),  # arXiv 2403.08295, table 1
    "gemma-2b": (8, 1, 256),
    "mistral-7b": (32, 8, 128),  # arXiv 2310.06825, table 1
    "mixtral-8x7b": (32, 8, 128),  # arXiv 2401.04088, table 1
    "qwen3-0.6b": (16, 8, 128),  # arXiv 2505.09388, table 1
}


@pytest.mark.parametrize("name", BYTES_PER_TOKEN)
def test_bytes_per_token(name: str) -> None:
    spec = audit_model(name).spec
    assert spec.cache_bytes_per_token(bits=16) == BYTES_PER_TOKEN[name]


@pytest.mark.parametrize("name", HEADS)
def test_heads(name: str) -> None:
    mixers = {mixer for layer in audit_model(name).spec.layers for mixer in layer.mixers}
    found = {(m.num_attention_heads, m.num_key_value_heads, m.head_dim) for m in mixers}
    assert found == {HEADS[name]}


def test_gpt2_by_hand() -> None:
    """4 * 768^2 weights and 4 * 768 biases a layer."""
    audit = audit_model("gpt2")
    for layer in audit.spec.layers:
        assert audit.layer_parts(layer).total - audit.layer_biases(layer) == 2_359_296
        assert audit.layer_biases(layer) == 3_072
    assert len(audit.spec.layers) == 12


def test_llama_3_8b_by_hand() -> None:
    """q and o are 4096 x 4096, k and v 1024 x 4096."""
    spec = audit_model("llama-3-8b").spec
    assert {layer.parameters().total for layer in spec.layers} == {41_943_040}
    assert spec.mha_cache_bytes(tokens=1, encoder_tokens=0) == 4 * 131_072


def test_sliding_layers_stop_growing() -> None:
    """Mistral-7B v0.1 keeps 4,095 tokens of its 4,096 window in transformers, in all 32 layers."""
    spec = audit_model("mistral-7b").spec
    per_token = 32 * 2 * 8 * 128 * 2
    assert spec.cache_bytes(tokens=4_000) == 4_000 * per_token
    assert spec.cache_bytes(tokens=32_768) == 4_095 * per_token
    assert spec.cache_bytes(tokens=32_768, engine="serving") == 4_096 * per_token
    assert spec.cache_bytes_per_token() == 0


def test_a_window_beyond_the_context_is_none() -> None:
    """Phi-3.5-mini: a window of 262,144 tokens, 131,072 positions; 32 layers of 32 heads of 96."""
    spec = audit_model("phi-3.5-mini").spec
    assert spec.cache_bytes_per_token() == 32 * 2 * 32 * 96 * 2 == 393_216
    assert spec.cache_bytes_per_token(within=262_144) == 393_216
    assert spec.cache_bytes_per_token(within=262_145) == 0


def test_an_encoder_keeps_nothing() -> None:
    spec = audit_model("bert-base-uncased").spec
    assert not spec.is_cached
    assert spec.cache_bytes(tokens=512) == 0


def test_falcon_40b_is_repeated_before_caching_in_transformers_only() -> None:
    spec = audit_model("falcon-40b").spec
    assert spec.cache_bytes_per_token(engine="serving") == 60 * 2 * 8 * 64 * 2
    assert spec.cache_bytes_per_token() == 60 * 2 * 128 * 64 * 2
