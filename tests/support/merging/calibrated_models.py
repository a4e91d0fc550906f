"""Configs of tiny models of several architectures, with 4 K/V heads in each of 3 layers."""

from typing import Any

VOCABULARY = 257
POSITIONS = 64
LLAMA = {
    **{"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48},
    **{"num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 8},
    **{"max_position_embeddings": POSITIONS, "initializer_range": 0.2},
    **{"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0},
}
_GPT2 = {
    **{"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 3, "n_head": 4},
    **{"n_positions": POSITIONS, "initializer_range": 0.2, "bos_token_id": 0, "eos_token_id": 0},
}
_OPT = {"word_embed_proj_dim": 32, "ffn_dim": 48, "init_std": 0.2}
_MOE = {"num_local_experts": 4, "num_experts_per_tok": 2}
_BLOOM = {"vocab_size": VOCABULARY, "hidden_size": 32, "n_layer": 3, "n_head": 4}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "gemma2": {**LLAMA, "sliding_window": 16, "query_pre_attn_scalar": 8},
    "gemma3_text": {**LLAMA, "sliding_window": 16, "query_pre_attn_scalar": 8},
    "olmo2": LLAMA,
    "granite": {**LLAMA, "residual_multiplier": 0.5, "attention_multiplier": 0.3},
    "gpt2": _GPT2,
    "gptj": {**_GPT2, "rotary_dim": 4},
    "gpt_neox": {**LLAMA, "rotary_pct": 0.5},
    "phi": {**LLAMA, "partial_rotary_factor": 0.5},
    "opt": {**LLAMA, **_OPT},
    "bloom": {**_BLOOM, "initializer_range": 0.2, "bos_token_id": 0, "eos_token_id": 0},
    "mixtral": {**LLAMA, **_MOE},
}
