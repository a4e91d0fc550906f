"""What other tools reckon, from their own published formulas: to compare with, not to use."""

from collections.abc import Mapping
from typing import Any

from headcount.model.spec import ModelSpec


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a config that tells heads and layers."""
    nested = config.get("text_config")
    return {**config, **nested} if isinstance(nested, Mapping) else config


def flat_request_bytes(config: Mapping[str, Any], tokens: int, bytes_each: int) -> int:
    """2 x layers x num_key_value_heads x head_dim x tokens: every layer alike, every token kept."""
    return _layers(config) * _layer_bytes(config, tokens, bytes_each)


def hf_mem_request_bytes(config: Mapping[str, Any], tokens: int, bytes_each: int) -> int:
    """alvarobartt/hf-mem 0.5.5, kv_cache.py: layers of `layer_types` other than full attention keep
    sliding_window tokens, or all where there is none."""
    text = text_config(config)
    kinds = text.get("layer_types")
    window = text.get("sliding_window") or tokens
    if not isinstance(kinds, list):
        return flat_request_bytes(config, tokens, bytes_each)
    full = sum(kind == "full_attention" for kind in kinds)
    kept = full * tokens + (len(kinds) - full) * min(window, tokens)
    return int(kept * _layer_bytes(config, 1, bytes_each))


def accelerate_weights(spec: ModelSpec) -> int | None:
    """huggingface/accelerate estimate-memory at float16: AutoModel has no output head, and what is
    quantised counts as if it were not."""
    if spec.parameters is None:
        return None
    head = 0 if spec.tie_word_embeddings else (spec.vocab_size or 0) * spec.hidden_size
    return (spec.parameters - head) * 2


def _layers(config: Mapping[str, Any]) -> int:
    text = text_config(config)
    return int(text.get("num_hidden_layers") or text["n_layer"])


def _layer_bytes(config: Mapping[str, Any], tokens: int, bytes_each: int) -> int:
    text = text_config(config)
    heads = int(text.get("num_attention_heads") or text["n_head"])
    width = int(text.get("hidden_size") or text["n_embd"])
    kv_heads = int(text.get("num_key_value_heads") or heads)
    head_dim = int(text.get("head_dim") or width // heads)
    return 2 * kv_heads * head_dim * tokens * bytes_each
