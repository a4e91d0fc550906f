"""GPT-NeoX with a sequential residual -> Starcoder2: the same layer under other names."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .phi import GPT_NEOX_TO_PHI, NEOX_OUTSIDE, neox_rope, neox_sizes
from .rehome import OldConfig


def _config(old: OldConfig, heads: int, head_dim: int) -> Mapping[str, Any]:
    dropout = dict.fromkeys(("residual_dropout", "embedding_dropout"), old["hidden_dropout"])
    own = {"norm_epsilon": old["layer_norm_eps"], "use_bias": True, "sliding_window": None}
    return {**neox_sizes(old), **dropout, **own, **neox_rope(old)}


def _misfit(old: OldConfig) -> str | None:
    if old["use_parallel_residual"]:
        return "its residual is parallel"
    if neox_rope(old)["partial_rotary_factor"] != 1:
        return "it rotates a part of each head only, and Starcoder2 all of it"
    return None


GPT_NEOX_TO_STARCODER2 = replace(
    GPT_NEOX_TO_PHI,
    target="starcoder2",
    reason="GPT-NeoX's class has one K/V head per query head; Starcoder2 computes the same function"
    " (its residual is sequential, too)",
    kept={
        **{name: name for name in ("input_layernorm", "post_attention_layernorm")},
        **{"attention.dense": "self_attn.o_proj"},
        **{"mlp.dense_h_to_4h": "mlp.c_fc", "mlp.dense_4h_to_h": "mlp.c_proj"},
    },
    folds={},
    outside={
        **NEOX_OUTSIDE,
        **{f"final_layer_norm.{p}": f"model.norm.{p}" for p in ("weight", "bias")},
    },
    classes={
        f"GPTNeoX{kind}": f"Starcoder2{kind}"
        for kind in (
            *("ForCausalLM", "Model", "ForSequenceClassification", "ForTokenClassification"),
        )
    },
    config=_config,
    fits=_misfit,
    made={f"self_attn.{part}_proj.bias": 0.0 for part in "qkvo"},
    made_outside={},
)
