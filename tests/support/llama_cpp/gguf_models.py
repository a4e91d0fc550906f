"""Tiny models of each class that `convert --format gguf` writes, the same on every machine: their
weights follow from a formula, not from a generator of random numbers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

VOCABULARY, POSITIONS = 320, 64
# Tokens that models are asked about: longer than the windows of those that have one.
TOKENS = tuple((7 * i * i + 3 * i + 5) % VOCABULARY for i in range(40))

_PLAIN: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": POSITIONS,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
}
_GPT2 = {
    "vocab_size": VOCABULARY,
    "n_embd": 64,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": POSITIONS,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
_FEWER = ("num_key_value_heads", "intermediate_size")
_MHA = {name: value for name, value in _PLAIN.items() if name != "num_key_value_heads"}
_FALCON = {name: value for name, value in _PLAIN.items() if name not in _FEWER}
_BLOOM = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "n_layer": 2,
    "n_head": 4,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
_MPT = {
    "vocab_size": VOCABULARY,
    "d_model": 64,
    "n_layers": 2,
    "n_heads": 4,
    "max_seq_len": POSITIONS,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
_WIDE = {**_PLAIN, "head_dim": 32}
# Of `convert --home mla`: all layers are dense
_MLA = {
    **_PLAIN,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-6,
    "q_lora_rank": None,
    "kv_lora_rank": 24,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "first_k_dense_replace": 2,
    "n_routed_experts": 1,
    "n_shared_experts": 1,
    "num_experts_per_tok": 1,
    "n_group": 1,
    "topk_group": 1,
    "moe_intermediate_size": 96,
}
# What --home mla makes of a latent in front of its norm, and that norm of it: in all about 1.
_SMALL, _RESTORING = 2.0**-33, 2.0**23
_SQUARE = {"kv_lora_rank": 32, "qk_nope_head_dim": 32, "v_head_dim": 32}
_GEMMA = {**_WIDE, "query_pre_attn_scalar": 32, "sliding_window": 8}


def _rope(kind: str, **more: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **more}}


_LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
_LONG = {
    "long_factor": [1.0 + i / 2 for i in range(8)],
    "short_factor": [1.0 + i / 10 for i in range(8)],
    "original_max_position_embeddings": 16,
}


class GgufModel(NamedTuple):
    """A model of `model_type` with this config. `published` are keys that older files of the class
    have, and that llama.cpp's own converter asks for."""

    model_type: str
    config: Mapping[str, Any]
    published: Mapping[str, Any] = {}


GGUF_MODELS: Mapping[str, GgufModel] = {
    "llama": GgufModel("llama", _PLAIN),
    "llama, biases, wide heads, tied": GgufModel(
        "llama", {**_WIDE, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}
    ),
    "llama, rope of llama3": GgufModel(
        "llama", {**_PLAIN, **_rope("llama3", **_LLAMA3, original_max_position_embeddings=32)}
    ),
    "llama, rope linear": GgufModel("llama", {**_PLAIN, **_rope("linear", factor=2.0)}),
    "llama, yarn": GgufModel(
        "llama",
        {**_PLAIN, **_rope("yarn", factor=2.0, original_max_position_embeddings=32)},
    ),
    "mistral": GgufModel("mistral", {**_PLAIN, "sliding_window": 4096}),
    "qwen2": GgufModel("qwen2", _PLAIN),
    "qwen3": GgufModel("qwen3", _WIDE),
    "gemma": GgufModel("gemma", _WIDE),
    "gemma2": GgufModel("gemma2", {**_GEMMA, "num_hidden_layers": 4}),
    "gemma3": GgufModel("gemma3_text", {**_GEMMA, "num_hidden_layers": 6}),
    "phi": GgufModel("phi", _PLAIN),
    "phi3": GgufModel("phi3", {**_PLAIN, "original_max_position_embeddings": POSITIONS}),
    "phi3, longrope": GgufModel(
        "phi3",
        {**_PLAIN, "original_max_position_embeddings": 16, **_rope("longrope", **_LONG)},
    ),
    "gpt2": GgufModel("gpt2", _GPT2, {"n_ctx": POSITIONS}),
    "gpt_bigcode": GgufModel("gpt_bigcode", {**_GPT2, "multi_query": True}),
    "gpt_bigcode, MHA": GgufModel("gpt_bigcode", {**_GPT2, "multi_query": False}),
    "gpt_neox": GgufModel("gpt_neox", _MHA, {"rotary_pct": 0.25}),
    "gpt_neox, sequential": GgufModel(
        "gpt_neox",
        {**_MHA, "use_parallel_residual": False, "hidden_act": "gelu_new"},
        {"rotary_pct": 0.25},
    ),
    "falcon, MQA": GgufModel("falcon", {**_FALCON, "multi_query": True}, {"num_kv_heads": 1}),
    "falcon, GQA": GgufModel(
        "falcon", {**_FALCON, "new_decoder_architecture": True, "num_kv_heads": 2}
    ),
    "bloom": GgufModel("bloom", _BLOOM),
    "mpt": GgufModel("mpt", _MPT, {"architectures": ["MPTForCausalLM"]}),
    "mpt, clipped": GgufModel(
        "mpt", {**_MPT, "attn_config": {"clip_qkv": 0.5}}, {"architectures": ["MPTForCausalLM"]}
    ),
    "stablelm": GgufModel("stablelm", _PLAIN),
    "stablelm, q and k normed": GgufModel(
        "stablelm",
        {**_PLAIN, "use_parallel_residual": True, "qk_layernorm": True, "use_qkv_bias": True},
    ),
    "starcoder2": GgufModel("starcoder2", _PLAIN),
    "olmo": GgufModel("olmo", {**_PLAIN, "clip_qkv": 0.5}),
    "olmo2": GgufModel("olmo2", _PLAIN),
    "olmo3": GgufModel("olmo3", {**_PLAIN, "sliding_window": 8, "num_hidden_layers": 4}),
    "granite": GgufModel(
        "granite",
        {
            **_PLAIN,
            "attention_multiplier": 0.3,
            "embedding_multiplier": 2.0,
            "residual_multiplier": 0.5,
            "logits_scaling": 3.0,
        },
    ),
    "cohere": GgufModel("cohere", _PLAIN),
    "cohere2": GgufModel(
        "cohere2",
        {**_PLAIN, "sliding_window": 8, "num_hidden_layers": 4},
        {"rotary_pct": 1.0},
    ),
    "smollm3": GgufModel("smollm3", {**_PLAIN, "num_hidden_layers": 4}),
    "nemotron": GgufModel("nemotron", _PLAIN),
    "deepseek_v3, of --home mla": GgufModel("deepseek_v3", _MLA),
    "deepseek_v3, square halves, tied": GgufModel(
        "deepseek_v3", {**_MLA, **_SQUARE, "tie_word_embeddings": True}
    ),
}


def build(name: str) -> Any:
    """The model, in float32."""
    import torch
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    one = GGUF_MODELS[name]
    config = CONFIG_MAPPING[one.model_type](**one.config)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for index, (path, parameter) in enumerate(model.named_parameters()):
            values = _values(parameter.numel(), index)
            is_gain = parameter.dim() == 1 and path.endswith("weight")
            parameter.mul_(0).add_(values.view(parameter.shape))
            if is_gain and not one.model_type.startswith(("gemma", "nemotron")):
                parameter.add_(1)
            if path.endswith("kv_a_proj_with_mqa.weight"):
                parameter[: config.kv_lora_rank] *= _SMALL
            elif path.endswith("kv_a_layernorm.weight"):
                parameter *= _RESTORING
    return model


def _values(count: int, seed: int) -> Any:
    """Numbers in [-1/4, 1/4) that float32 holds as they are."""
    import torch

    state = torch.arange(count, dtype=torch.int64) + 7919 * (seed + 1)
    for _ in range(3):
        state = (1103515245 * state + 12345) % 2**31
        state = state ^ (state >> 13)
    return ((state >> 15) - 2**15).to(torch.float32) / 2**17


def save(name: str, folder: Path) -> Any:
    """The model, written as transformers writes it."""
    model = build(name)
    model.save_pretrained(folder)
    return model
