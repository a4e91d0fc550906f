"""Keys by which a model_type that nothing describes is read, and keys that make it be refused.

Published configs and their numbers; heads and windows are those of the models' own code.
"""

from typing import Any

import pytest

from headcount.arch.read_config import read_config
from headcount.model.errors import UnsupportedModelError
from headcount.model.mixers import Attention
from headcount.model.spec import ModelSpec

STRANGER: dict[str, Any] = {
    **{"model_type": "stranger", "hidden_size": 64, "num_attention_heads": 8},
    **{"num_key_value_heads": 2, "num_hidden_layers": 4, "vocab_size": 99},
}
# MiniMind's config of 2024 (jingyaogong/minimind): LMConfig with the names of Meta's params.json.
MINIMIND: dict[str, Any] = {
    **{"model_type": "minimind", "dim": 768, "n_layers": 16, "n_heads": 8, "n_kv_heads": 2},
    **{"max_seq_len": 8192, "vocab_size": 6400, "torch_dtype": "float32"},
}
# A vision language model over Qwen2-7B: it writes a window beside the flag that switches it off.
QWEN2_VLM: dict[str, Any] = {
    **{"model_type": "my_qwen2_vlm", "hidden_size": 3584, "num_attention_heads": 28},
    **{"num_key_value_heads": 4, "num_hidden_layers": 28, "sliding_window": 131072},
    **{"use_sliding_window": False, "max_window_layers": 28, "vocab_size": 152064},
}
# openPangu-Embedded-7B without its model_type: biases on q, k, v and o.
PANGU: dict[str, Any] = {
    **{"model_type": "unknownx", "attention_bias": True, "hidden_size": 4096},
    **{"num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 34},
}


def read(**more: Any) -> ModelSpec:
    return read_config({**STRANGER, **more}, "config").spec


def first(spec: ModelSpec) -> Attention:
    mixer = spec.layers[0].mixers[0]
    assert spec.assumed
    assert isinstance(mixer, Attention)
    return mixer


def windows(spec: ModelSpec) -> list[int | None]:
    return [mixer.window for layer in spec.layers for mixer in layer.mixers]


def test_minimind_is_read_by_the_names_of_its_sizes() -> None:
    spec = read_config(MINIMIND, "config").spec
    mixer = first(spec)
    heads = (mixer.num_attention_heads, mixer.num_key_value_heads, mixer.head_dim)
    assert (len(spec.layers), *heads, spec.max_position_embeddings) == (16, 8, 2, 96, 8192)
    assert spec.cache_bytes(tokens=1, bits=32) == 16 * 2 * 2 * 96 * 4


def test_a_window_that_is_switched_off_is_none() -> None:
    assert windows(read_config(QWEN2_VLM, "config").spec) == [None] * 28


def test_biases_of_an_attention_are_counted() -> None:
    """4096 x (4096 + 2 x 1024 + 4096) weights and 4096 + 2 x 1024 + 4096 biases a layer."""
    assert first(read_config(PANGU, "config").spec).parameters().total == 41_943_040 + 10_240


@pytest.mark.parametrize(
    ("key", "parts"),
    [
        ("bias", "qkvo"),
        ("use_bias", "qkvo"),
        ("attn_bias", "qkvo"),
        ("add_qkv_bias", "qkv"),
        ("qkv_bias", "qkv"),
        ("o_bias", "o"),
    ],
)
def test_each_name_of_a_bias(key: str, parts: str) -> None:
    mixer = first(read(**{key: True}))
    assert {p for p in "qkvo" if getattr(mixer, f"{p}_bias")} == set(parts)
    off = first(read(**{key: False}))
    assert not any(getattr(off, f"{part}_bias") for part in "qkvo")


def test_a_flag_against_biases() -> None:
    assert first(read(no_bias=False)).o_bias
    assert not first(read(no_bias=True)).o_bias


@pytest.mark.parametrize(
    ("keys", "heads"),
    [
        ({"n_kv_heads": 4}, 4),
        ({"n_head_kv": 4}, 4),
        ({"kv_n_heads": 4}, 4),
        ({"num_query_groups": 4}, 4),
        ({"num_heads_kv": 4}, 4),
        ({"multi_query_attention": True, "multi_query_group_num": 4}, 4),  # ChatGLM2
        ({"multi_query_attention": False, "multi_query_group_num": 4}, 8),  # ChatGLM2
        ({"multi_query": True}, 1),
        ({"multi_query": False}, 8),
        ({"attn_config": {"attn_type": "grouped_query_attention", "kv_n_heads": 4}}, 4),
        ({"attn_config": {"attn_type": "multiquery_attention"}}, 1),
        ({"attention_head_type": "mqa"}, 1),
        ({}, 8),
    ],
    ids=str,
)
def test_each_name_of_a_number_of_key_value_heads(keys: dict[str, Any], heads: int) -> None:
    config = {key: value for key, value in STRANGER.items() if key != "num_key_value_heads"}
    mixer = first(read_config({**config, **keys}, "config").spec)
    assert mixer.num_key_value_heads == heads
    assert mixer.state_elements(1, 0) == 2 * heads * 8


def test_heads_that_each_layer_has_to_itself() -> None:
    spec = read(num_key_value_heads=[1, 2, 4, 8])
    assert [layer.mixers[0].state_elements(1, 0) for layer in spec.layers] == [16, 32, 64, 128]


def test_heads_that_each_layer_has_to_itself_by_another_name() -> None:
    """As in Deci/DeciLM-7B, whose K/V heads are 4, 2 and 1 by layer."""
    config = {key: value for key, value in STRANGER.items() if key != "num_key_value_heads"}
    listed = {**config, "num_key_value_heads_per_layer": [4, 4, 2, 1]}
    spec = read_config(listed, "config").spec
    assert [layer.mixers[0].state_elements(1, 0) for layer in spec.layers] == [64, 64, 32, 16]


def test_values_of_another_width() -> None:
    assert first(read(head_dim=8, v_head_dim=4)).state_elements(1, 0) == 2 * (8 + 4)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"sliding_window": 16}, [16] * 4),
        ({"sliding_window": 16, "use_sliding_window": True}, [16] * 4),
        ({"sliding_window": 16, "use_sliding_window": None}, [None] * 4),
        ({"sliding_window": 16, "max_window_layers": 3}, [None] * 3 + [16]),
        ({"sliding_window": 16, "sliding_window_pattern": 2}, [16, None, 16, None]),
        (
            {"sliding_window": 16, "layer_types": ["full_attention", "sliding_attention"] * 2},
            [None, 16, None, 16],
        ),
        ({"attention_chunk_size": 16}, [16] * 4),
    ],
    ids=str,
)
def test_each_way_to_say_which_layers_slide(keys: dict[str, Any], expected: list[Any]) -> None:
    assert windows(read(**keys)) == expected


@pytest.mark.parametrize(
    "more",
    [
        {"architectures": ["XForMaskedLM"]},
        {"type_vocab_size": 2},
        {"type_vocab_size": 0, "pos_att_type": ["c2p"]},  # DeBERTa
        {"is_causal": False},
        {"is_encoder": True},
        {"architectures": ["LlamaBidirectionalModel"]},  # nvidia/llama-3.2-nv-embedqa-1b-v2
        {"model_type": "bidir_mistral"},  # text_config of nvidia/NV-Embed-v2
    ],
    ids=str,
)
def test_an_encoder_keeps_nothing(more: dict[str, Any]) -> None:
    assert read(**more).cache_bytes(tokens=9, bits=16) == 0


@pytest.mark.parametrize(
    "key", ["text_config", "llm_config", "llm_cfg", "language_config", "language", "language_model"]
)
@pytest.mark.parametrize("model_type", ["internlm2", None])
def test_each_name_of_a_nested_language_model(key: str, model_type: str | None) -> None:
    """The one of InternVL2-2B; without a type of its own its class tells it."""
    text = {
        **{"model_type": model_type, "architectures": ["InternLM2ForCausalLM"]},
        **{"hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 8},
        **{"num_hidden_layers": 24, "vocab_size": 92553},
    }
    reading = read_config({"model_type": "my_vlm", key: text, "vision": {"width": 9}}, "config")
    assert reading.text.model_type == "internlm2"
    assert reading.spec.cache_bytes(tokens=1, bits=16) == 24 * 2 * 8 * 128 * 2


@pytest.mark.parametrize(
    "keys",
    [
        {"compress_ratios": [0, 4, 4, 4]},
        {"index_topk": 512},
        {"indexer_types": ["full"] * 4},
        {"ssm_state_size": 128},
        {"mamba_d_conv": 4},
        {"conv_kernel": 4},
        {"linear_attn_config": {"head_dim": 8}},
        {"linear_num_key_heads": 4},
        {"lightning_head_dim": 8},
        {"hybrid_override_pattern": "M-M*"},
        {"hybrid_layer_pattern": [1, 1, 0, 0]},
        {"attn_type_list": [0, 0, 0, 1]},
        {"attn_type_list": [0, 0, 0, 0]},
        {"full_attention_interval": 4},
        {"attn_layer_period": 8},
        {"layers_block_type": ["mamba", "attention", "mamba", "mamba"]},
        {"block_types": ["recurrent", "attention"]},
        {"layer_types": ["linear_attention"] * 4},
        {"sparse_attention_config": {"sparse_index_dim": 8}},
        {"num_kv_shared_layers": 2},
        {"cla_share_factor": 2, "use_cla": True},
        {"swa_num_key_value_heads": 4},
        {"global_head_dim": 16},
        {"cross_attention_layers": [2]},
        {"is_encoder_decoder": True},
        {"block_configs": [{"attention": {}}] * 4},
        {"window_size": 16},
        {"no_rope_layer_interval": 4, "attention_chunk_size": 8},
        {"local_attention": 16},
        {"cross_layer_interval": 1},
        {"cross_layer_kv_sharing": 2},
        {"kv_sharing_target": 3},
        {"encoder_hidden_size": 64},
        {"decoder_attention_heads": 8},
        {"num_decoder_layers": 4},
        {"prompt_length": 8},
        {"inner_group_num": 2},
        {"num_attention_heads_per_layer": 8},
        {"num_sliding_attention_heads": 4},
        {"attention_other_setting": {"num_attention_heads": 16}},
        {"qk_rope_head_dim": 8},
        {"use_bidirectional_attention": True},
        {"attn_config": {"sliding_window_size": 16}},
        *({key: True} for key in ("use_mla", "mla", "use_linear", "linear", "token_shift")),
        *({key: True} for key in ("reuse_kv", "time_shift", "bidirectional", "use_retention")),
        *({key: 3} for key in ("num_recursions", "layers_repeat", "repeat_layers", "tied_layers")),
        *({key: 3} for key in ("tpa_rank", "kv_rank", "latent_dim", "pooling_factor", "pool_size")),
        *(
            {key: 3}
            for key in ("num_encoder_layers", "global_layers", "local_layers", "skip_layers")
        ),
        *({key: 3} for key in ("self_decoder_layers", "layer_reuse", "num_repeats", "exit_layer")),
        *({key: 4} for key in ("kv_cache_bits", "kv_bits", "kv_cache_dtype", "cache_quant_bits")),
        *({key: 16} for key in ("kv_dim", "key_dim", "value_head_size", "q_lora_rank")),
        *({key: 16} for key in ("num_meta_tokens", "prefix_tokens", "max_attn_span", "dilation")),
        *({key: 16} for key in ("topk_blocks", "lsh_buckets", "beacon_size", "num_latents")),
        {"local_layers": [1, 3]},
        {"tied_layers": [[0, 1], [2, 3]]},
        {"layer_types": ["chunked_attention", "full_attention"] * 2},
        {"layers": [{"mixer": "attention"}] * 3},
        {"multi_query": "true"},
        {"multi_query": 1},
        {"attention": "linear"},
        {"attention": {"sparse": True}},
        {"backbone": "mamba"},
        {"architectures": ["RwkvNextForCausalLM"]},
        {"model_type": "mamba9"},
    ],
    ids=str,
)
def test_what_changes_the_cache_and_is_not_understood_is_refused(keys: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedModelError, match=next(iter(keys))):
        read(**keys)


@pytest.mark.parametrize(
    "keys",
    [
        {"mamba_d_state": None},
        {"num_kv_shared_layers": 0},
        {"cla_share_factor": 2, "use_cla": False},
        {"attn_type_list": [1, 1, 1, 1]},
        {"full_attention_interval": 1},
        {"image_token_index": 7},
        {"decoder_sparse_step": 1},
        {"output_hidden_states": True},
        {"no_rope_layers": [1, 1, 1, 0]},
        {"moe_layer_freq": [0, 1, 1, 1]},
        {"add_bias_linear": False},
        {"sliding_window": 16, "sliding_window_size": 16},
        {"use_bidirectional_attention": "vision"},
        {"inner_group_num": 1},
        {"full_attn_mod": 1},
        {"attn_config": {"sliding_window_size": -1, "attn_type": "multihead_attention"}},
    ],
    ids=str,
)
def test_what_changes_nothing_of_the_cache_is_read(keys: dict[str, Any]) -> None:
    assert read(**keys).assumed


@pytest.mark.parametrize(
    ("keys", "other"),
    [
        ({"num_query_groups": 4}, "num_key_value_heads"),
        ({"attn_config": {"kv_n_heads": 4}}, "num_key_value_heads"),
        ({"n_heads": 4}, "num_attention_heads"),
        ({"num_query_heads": 4}, "num_attention_heads"),
        ({"n_layers": 5}, "num_hidden_layers"),
        ({"d_model": 32}, "hidden_size"),
        ({"kv_channels": 16, "head_dim": 8}, "head_dim"),
        ({"num_key_value_groups": 8}, "K/V heads"),  # neither 2 nor 8 / 2
    ],
    ids=str,
)
def test_two_numbers_for_one_size_are_refused(keys: dict[str, Any], other: str) -> None:
    with pytest.raises(UnsupportedModelError, match=f"{next(iter(keys))}.*{other}"):
        read(**keys)


@pytest.mark.parametrize(
    "keys",
    [{"num_query_groups": 2}, {"n_heads": 8}, {"n_layers": 4}, {"kv_channels": 8, "head_dim": 8}],
    ids=str,
)
def test_one_number_by_two_names_is_read(keys: dict[str, Any]) -> None:
    assert first(read(**keys)).num_key_value_heads == 2


def test_a_number_that_a_flag_switches_off_contradicts_none() -> None:
    """ChatGLM's file has both: its flag is false, and the class builds a head for each query."""
    keys = {"multi_query_attention": False, "multi_query_group_num": 4, "num_key_value_heads": 8}
    assert first(read(**keys)).num_key_value_heads == 8


@pytest.mark.parametrize("key", ["num_key_value_groups", "gqa_ratio", "num_queries_per_kv"])
def test_a_word_for_both_numbers_is_refused_where_no_other_tells(key: str) -> None:
    without = {name: value for name, value in STRANGER.items() if name != "num_key_value_heads"}
    with pytest.raises(UnsupportedModelError, match=key):
        read_config({**without, key: 4}, "config")
    assert first(read(**{key: 4})).num_key_value_heads == 2


def doubts(**more: Any) -> dict[str, str]:
    assumed = read(architectures=["XForCausalLM"], max_position_embeddings=64, **more).assumptions
    return {one.about: one.doubt for one in assumed if one.doubt is not None}


def test_a_plain_decoder_raises_no_doubt() -> None:
    assert doubts() == {}
    told = {"layer_types": ["full_attention", "sliding_attention"] * 2, "sliding_window": 16}
    assert doubts(**told) == {}
    assert doubts(sliding_window=64) == {}  # is never full
    usual = {"torch_dtype": "bfloat16", "auto_map": {"AutoConfig": "c.C"}, "rope_theta": 1e4}
    assert doubts(**usual, moe_topk=2, num_experts=8, aux_loss_alpha=0.1, use_flash_attn=True) == {}
    assert doubts(attention_dropout=0.1, attn_logit_softcapping=50.0, lm_head_bias=True) == {}


@pytest.mark.parametrize(
    ("keys", "about", "words"),
    [
        ({"architectures": ["XModel"], "num_key_value_heads": 8}, "cache", "XModel"),
        ({"architectures": None, "num_key_value_heads": 8}, "cache", "no class"),
        ({"architectures": None, "is_decoder": False}, "cache", "is_decoder"),
        ({"sliding_window": 16}, "window", "no key says which layers"),
        ({"sliding_window": 16, "layer_types": None}, "window", "layer_types is null"),
        ({"sliding_window": 16, "sliding_window_pattern": 2}, "window", "sliding_window_pattern"),
        ({"multi_query": True}, "num_key_value_heads", "multi_query is true"),
        (
            {"multi_query": False, "num_key_value_heads": 1},
            "num_key_value_heads",
            "multi_query is false",
        ),
        ({"cross_attention_layers": None}, "layers", "cross_attention_layers is null"),
        ({"key_heads_shared": 3}, "key_heads_shared", "speaks of attention"),
        ({"attn_output_gate": True}, "attn_output_gate", "speaks of attention"),
        ({"n_positions": 128}, "max_position_embeddings", "n_positions says 128"),
        ({"num_attention_experts": 4}, "num_attention_experts", "speaks of attention"),
        ({"mask_type": "bidirectional"}, "other keys", "mask_type"),
        ({"mixture_of_depths": 0.5}, "other keys", "has mixture_of_depths"),
        (
            {"streams": 2, "decoder": {"x": 1}, "feature_map": "elu"},
            "other keys",
            "streams, decoder",
        ),
    ],
    ids=str,
)
def test_what_speaks_against_an_assumption(keys: dict[str, Any], about: str, words: str) -> None:
    spec = read(**{"architectures": ["XForCausalLM"], "max_position_embeddings": 64, **keys})
    said = {one.about: one.doubt for one in spec.assumptions}
    assert words in (said[about] or "")
    assert [name for name, doubt in said.items() if doubt is not None] == [about]


def test_layers_of_two_windows_are_told_apart() -> None:
    types = ["sliding_attention", "chunked_attention", "full_attention", "chunked_attention"]
    spec = read(sliding_window=16, attention_chunk_size=32, layer_types=types)
    said = {one.about: one for one in spec.assumptions}["window"]
    assert said.taken == "16 tokens in 1, 32 tokens in 2 of 4 layers"
    assert "sliding_window, attention_chunk_size, layer_types" in said.source
