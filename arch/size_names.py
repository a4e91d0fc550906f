"""The names that configs of many makers give to the same sizes, by the standard name of each."""

from collections.abc import Mapping
from typing import Any

# The context length in older configs of transformers' own classes.
CONTEXT_NAMES = (
    *("n_positions", "n_ctx", "max_seq_len", "seq_length", "max_sequence_length"),
    *("max_target_positions", "model_max_length"),
)
# Flags that say that all query heads share one K/V head.
ONE_KEY_VALUE_HEAD = ("multi_query", "multi_query_attention", "use_mqa", "use_multi_query")
# What `attention_head_type`, and `attn_type` of MPT's `attn_config`, call that.
ONE_HEAD_WORDS = frozenset({"mqa", "multiquery", "multi_query", "multiquery_attention"})
NAMES: dict[str, tuple[str, ...]] = {
    "hidden_size": ("n_embd", "n_embed", "d_model", "dim", "model_dim", "embed_dim", "model_size"),
    "num_hidden_layers": (
        *("n_layer", "n_layers", "num_layers", "num_transformer_layers", "num_blocks"),
        *("num_decoder_layers", "layers"),
    ),
    "num_attention_heads": (
        *("n_head", "n_heads", "num_heads", "num_attn_heads", "num_query_heads", "n_attn_heads"),
        *("attention_heads", "heads"),
    ),
    "num_key_value_heads": (
        *("n_kv_heads", "n_kv_head", "num_kv_heads", "n_head_kv", "n_heads_kv", "kv_n_heads"),
        *("kv_heads", "multi_query_group_num", "num_query_groups", "n_query_groups"),
        *("num_attention_groups", "num_attn_kv_heads", "num_heads_kv", "kv_num_heads"),
        *("num_attention_heads_kv", "num_attention_kv_heads", "num_kv_attention_heads"),
        *("n_key_value_heads", "num_key_value_head", "num_kv"),
        "num_key_value_heads_per_layer",  # a list (DeciLM)
    ),
    "head_dim": (
        *("kv_channels", "attention_head_dim", "head_size", "d_head", "dim_head", "d_kv"),
        *("size_per_head", "attention_head_size", "qk_head_dim", "attn_head_dim"),
        *("dim_per_head", "head_width"),
    ),
    "vocab_size": ("n_vocab", "padded_vocab_size"),
    "intermediate_size": (
        *("ffn_hidden_size", "n_inner", "ffn_dim", "d_ff", "ffn_embed_dim", "inner_dim"),
        *("ffn_intermediate_size", "mlp_hidden_size", "feed_forward_dim"),
    ),
    "max_position_embeddings": (
        *CONTEXT_NAMES,
        *("context_length", "max_seq_length", "max_context_length", "block_size"),
        *("seq_len", "context_size"),
    ),
}
# Names of the width of the model, or of that of its feed-forward.
EITHER_WIDTH = ("hidden_dim",)
# More sizes, whose name every class chooses for itself: one that a class does not have is ignored.
OF_CLASSES: dict[str, tuple[str, ...]] = {
    "num_experts": (
        *("num_experts", "num_local_experts", "n_routed_experts", "num_routed_experts"),
        *("moe_num_experts", "num_moe_experts", "n_experts", "experts"),
    ),
    "num_experts_per_tok": (
        *("num_experts_per_tok", "num_experts_per_token", "num_selected_experts", "moe_topk"),
        *("moe_top_k", "moe_k", "top_k_experts", "experts_per_token", "n_experts_per_token"),
        *("n_experts_per_tok", "num_active_experts"),
    ),
    "moe_intermediate_size": (
        *("moe_intermediate_size", "expert_intermediate_size", "moe_ffn_hidden_size"),
        *("expert_ffn_hidden_size", "expert_dim", "moe_hidden_dim", "moe_ffn_dim"),
        *("expert_size", "expert_hidden_size"),
    ),
    "n_shared_experts": (
        *("n_shared_experts", "num_shared_experts", "num_shared_expert", "n_shared_expert"),
        "moe_num_shared_experts",
    ),
    "sliding_window": (
        *("sliding_window", "sliding_window_size", "window_size", "attention_window"),
        *("attn_window_size", "local_window_size", "local_attention_window"),
        *("window", "swa_window", "swa_window_size"),
    ),
}


# Flags for biases, the most telling name first. `!`: the flag says that there are none.
_BIAS = ("attention_bias", "attn_bias", "use_attention_bias", "bias", "use_bias", "include_bias")
_ANY_BIAS = (*_BIAS, "add_bias_linear", "linear_bias", "enable_bias", "!no_bias")
QKV_BIAS = (
    *("qkv_bias", "use_qkv_bias", "add_qkv_bias", "attention_qkv_bias", "qkv_proj_bias"),
    *_ANY_BIAS,
)
O_BIAS = (
    "o_bias",
    "out_bias",
    "o_proj_bias",
    "attention_out_bias",
    "attention_o_bias",
    *_ANY_BIAS,
)
QK_NORMS = ("qk_norm", "use_qk_norm", "qk_layernorm", "use_qk_layernorm", "use_qk_normalization")
# Flags and words that the assumed reading takes beside the names of sizes.
READ_FLAGS = frozenset(
    {name.lstrip("!") for name in (*QKV_BIAS, *O_BIAS, *QK_NORMS, *ONE_KEY_VALUE_HEAD)}
    | {"attention_head_type", "attn_config", "use_mla", "is_causal", "causal"}
    | {"is_decoder", "is_encoder"}
)


def one_head_key(config: Mapping[str, Any]) -> str | None:
    """The key that says that all query heads share one K/V head, where no key gives a number."""
    inner = config.get("attn_config")
    inner = inner if isinstance(inner, dict) else {}
    names = names_of("num_key_value_heads")
    if any(config.get(name) is not None for name in names) or inner.get("kv_n_heads") is not None:
        return None
    words = {"attention_head_type": config, "attn_type": inner}
    flags = (key for key in ONE_KEY_VALUE_HEAD if config.get(key) is True)
    said = (key for key, holder in words.items() if str(holder.get(key)) in ONE_HEAD_WORDS)
    return next(flags, None) or next(said, None)


def names_of(size: str) -> tuple[str, ...]:
    """The standard name of a size, and the others."""
    return (size, *NAMES[size])
