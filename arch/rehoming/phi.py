"""Rotary decoders with parallel attention and MLP -> Phi, which has a number of K/V heads.

Phi has one norm in front of both branches, biases everywhere, and rotates the first dims of a head
as two halves. GPT-J and CodeGen rotate neighbouring dims: the rows of q and k are reordered.
GPT-NeoX has a norm per branch, whose affine parts are folded into the projections behind them.
"""

import math
from collections.abc import Mapping
from typing import Any

from .rehome import OldConfig, Rehome

_ATTENTION = {f"self_attn.{part}_proj": part for part in "qkv"}
_BIASES = {
    **{f"self_attn.{part}_proj.bias": 0.0 for part in "qkv"},
    "self_attn.dense.bias": 0.0,
}
_GPTJ_KEPT = {
    **{"ln_1": "input_layernorm", "attn.out_proj": "self_attn.dense"},
    **{"mlp.fc_in": "mlp.fc1", "mlp.fc_out": "mlp.fc2"},
}
_GPTJ_OUTSIDE = {
    **{"wte.weight": "model.embed_tokens.weight"},
    **{f"ln_f.{p}": f"model.final_layernorm.{p}" for p in ("weight", "bias")},
    **{name: name for name in ("lm_head.weight", "lm_head.bias", "score.weight")},
}
_GPTJ_GONE = frozenset(
    {
        *("n_positions", "n_embd", "n_layer", "n_head", "n_inner", "n_ctx", "rotary_dim"),
        *("activation_function", "attn_pdrop", "layer_norm_epsilon", "scale_attn_weights"),
        *("rotary", "gradient_checkpointing", "summary_activation", "summary_first_dropout"),
        *("summary_proj_to_labels", "summary_type", "summary_use_proj", "tokenizer_class"),
    }
)
_GPTJ_DEFAULTS = {
    **{"activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "rotary_dim": 64},
    **{"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "initializer_range": 0.02},
    **{"bos_token_id": 50256, "eos_token_id": 50256},
}


def _gptj_config(old: OldConfig, heads: int, head_dim: int) -> Mapping[str, Any]:
    hidden = old["hidden_size"]
    return {
        "hidden_size": hidden,
        "intermediate_size": old["n_inner"] or 4 * hidden,
        "num_hidden_layers": old["num_hidden_layers"],
        "max_position_embeddings": old["max_position_embeddings"],
        "hidden_act": old["activation_function"],
        "layer_norm_eps": old["layer_norm_epsilon"],
        "attention_dropout": old["attn_pdrop"],
        **{key: old[key] for key in ("resid_pdrop", "embd_pdrop", "initializer_range")},
        **{key: old[key] for key in ("bos_token_id", "eos_token_id")},
        **_rotary({"rope_type": "default"}, 10000.0, _factor(_rotated(old, head_dim), head_dim)),
    }


def _rotary(given: Mapping[str, Any], theta: float, factor: float) -> dict[str, Any]:
    """As transformers 5 reads it, and as older releases and engines do."""
    rope = {**given, "rope_theta": theta, "partial_rotary_factor": factor}
    return {"rope_parameters": rope, "rope_theta": theta, "partial_rotary_factor": factor}


def _factor(rotated: int, head_dim: int) -> float:
    """A share of head_dim that is rounded down to `rotated` dims when it is multiplied again."""
    factor = rotated / head_dim
    return factor if int(head_dim * factor) == rotated else math.nextafter(factor, 1)


def _rotated(old: OldConfig, head_dim: int) -> int:
    return int(old["rotary_dim"] or head_dim)


def _pairs_to_halves(old: OldConfig, head_dim: int) -> tuple[int, ...]:
    """Rows (0, 1), (2, 3)… turn together in GPT-J; in Phi, 0 and half, 1 and half + 1…"""
    rotated = _rotated(old, head_dim)
    rest = range(rotated, head_dim)
    return (*range(0, rotated, 2), *range(1, rotated, 2), *rest)


def _classes(name: str, *more: str) -> dict[str, str]:
    return {f"{name}{kind}": f"Phi{kind}" for kind in ("ForCausalLM", "Model", *more)}


GPTJ_TO_PHI = Rehome(
    target="phi",
    reason="GPT-J's class has one K/V head per query head; Phi computes the same function",
    new_layer="model.layers.{}.{}",
    takes=_ATTENTION,
    turned=_pairs_to_halves,
    kept=_GPTJ_KEPT,
    outside=_GPTJ_OUTSIDE,
    classes=_classes("GPTJ", "ForSequenceClassification"),
    config=_gptj_config,
    fits=lambda old: None,
    made=_BIASES,
    dropped=frozenset({"attn.bias", "attn.masked_bias"}),
    defaults=_GPTJ_DEFAULTS,
    gone=_GPTJ_GONE,
)
CODEGEN_TO_PHI = Rehome(
    target="phi",
    reason="CodeGen's class has one K/V head per query head; Phi computes the same function",
    new_layer=GPTJ_TO_PHI.new_layer,
    takes=_ATTENTION,
    turned=_pairs_to_halves,
    kept=_GPTJ_KEPT,
    outside=_GPTJ_OUTSIDE,
    classes=_classes("CodeGen"),
    config=_gptj_config,
    fits=lambda old: (
        "its query heads do not lie in four equal blocks"
        if old["num_attention_heads"] % 4
        else None
    ),
    made=_BIASES,
    dropped=frozenset({"attn.bias", "attn.masked_bias", "attn.causal_mask"}),
    defaults=_GPTJ_DEFAULTS,
    gone=_GPTJ_GONE,
)

_NEOX_DEFAULTS = {
    **{"hidden_act": "gelu", "layer_norm_eps": 1e-5, "attention_dropout": 0.0},
    **{"hidden_dropout": 0.0, "initializer_range": 0.02, "bos_token_id": 0, "eos_token_id": 2},
}
NEOX_GONE = frozenset(
    {
        *("attention_bias", "classifier_dropout", "hidden_dropout", "is_decoder"),
        *("rotary_emb_base", "rotary_pct", "rope_scaling", "use_parallel_residual"),
        *("layer_norm_eps", "tokenizer_class"),
    }
)
NEOX_OUTSIDE = {
    "embed_in.weight": "model.embed_tokens.weight",
    "embed_out.weight": "lm_head.weight",
    "lm_head.weight": "lm_head.weight",
    "score.weight": "score.weight",
    "classifier.weight": "classifier.weight",
    "classifier.bias": "classifier.bias",
}


def neox_rope(old: OldConfig) -> dict[str, Any]:
    """rope_parameters of transformers 5, or the keys of older files."""
    given = dict(old["rope_parameters"] or old["rope_scaling"] or {})
    given.setdefault("rope_type", given.pop("type", "default"))
    theta = given.pop("rope_theta", None) or old["rotary_emb_base"] or 10000.0
    factor = given.pop("partial_rotary_factor", None) or old["rotary_pct"] or 0.25
    return _rotary(given, float(theta), float(factor))


def neox_sizes(old: OldConfig) -> dict[str, Any]:
    """What has the same name in all classes; written out, since their defaults differ."""
    keys = (
        *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "hidden_act"),
        *("max_position_embeddings", "attention_dropout", "initializer_range"),
        *("bos_token_id", "eos_token_id", "tie_word_embeddings"),
    )
    return {key: old[key] for key in keys}


def _neox_config(old: OldConfig, heads: int, head_dim: int) -> Mapping[str, Any]:
    dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop"), old["hidden_dropout"])
    norm = {"layer_norm_eps": old["layer_norm_eps"], "qk_layernorm": False}
    return {**neox_sizes(old), **dropout, **norm, **neox_rope(old)}


GPT_NEOX_TO_PHI = Rehome(
    target="phi",
    reason="GPT-NeoX's class has one K/V head per query head; Phi computes the same function, with"
    " the two norms of a layer folded into what reads them",
    new_layer="model.layers.{}.{}",
    takes=_ATTENTION,
    kept={
        **{"attention.dense": "self_attn.dense"},
        **{"mlp.dense_h_to_4h": "mlp.fc1", "mlp.dense_4h_to_h": "mlp.fc2"},
    },
    folds={
        "attention.query_key_value": "input_layernorm",
        "mlp.dense_h_to_4h": "post_attention_layernorm",
    },
    outside={
        **NEOX_OUTSIDE,
        **{f"final_layer_norm.{p}": f"model.final_layernorm.{p}" for p in ("weight", "bias")},
    },
    classes=_classes("GPTNeoX", "ForSequenceClassification", "ForTokenClassification"),
    config=_neox_config,
    fits=lambda old: None if old["use_parallel_residual"] else "its residual is not parallel",
    made={**_BIASES, "input_layernorm.weight": 1.0, "input_layernorm.bias": 0.0},
    made_outside={"lm_head.bias": (0.0, "embed_in.weight")},
    dropped=frozenset({"attention.bias", "attention.masked_bias", "attention.rotary_emb.inv_freq"}),
    defaults=_NEOX_DEFAULTS,
    gone=NEOX_GONE,
)
