"""GPT-2 and OPT -> GPTBigCode with multi_query: learned positions and a single K/V head.

transformers has no class with learned positions and several K/V heads. GPTBigCode's projections are
Linear ([out, in]) where GPT-2's are Conv1D ([in, out]), and c_attn's rows are [q (all heads)|k|v].
"""

from collections.abc import Mapping
from typing import Any

from .rehome import OldConfig, Rehome

_NAMES = ("ln_1", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj")
_LINEAR = ("attn.c_proj", "mlp.c_fc", "mlp.c_proj")


def _gpt2_misfit(old: OldConfig) -> str | None:
    if old["scale_attn_by_inverse_layer_idx"]:
        return (
            "scale_attn_by_inverse_layer_idx is set, and GPTBigCode has no scale per layer: no"
            " class holds the result"
        )
    if old["add_cross_attention"]:
        return "add_cross_attention is set, and GPTBigCode with multi_query has none"
    return None


def _gpt2_config(old: OldConfig, heads: int, head_dim: int) -> Mapping[str, Any]:
    return {"multi_query": True, "activation_function": old["activation_function"]}


GPT2_TO_BIGCODE = Rehome(
    target="gpt_bigcode",
    reason="GPT-2's class has one K/V head per query head; GPTBigCode with multi_query computes the"
    " same function",
    new_layer="transformer.h.{}.{}",
    takes={"attn.c_attn": "qkv"},
    kept={name: name for name in _NAMES},
    transposed=frozenset(_LINEAR),
    outside={
        **{name: f"transformer.{name}" for name in ("wte.weight", "wpe.weight")},
        **{f"ln_f.{p}": f"transformer.ln_f.{p}" for p in ("weight", "bias")},
        **{name: name for name in ("lm_head.weight", "score.weight")},
        **{f"classifier.{p}": f"classifier.{p}" for p in ("weight", "bias")},
    },
    classes={
        "GPT2LMHeadModel": "GPTBigCodeForCausalLM",
        "GPT2Model": "GPTBigCodeModel",
        "GPT2ForSequenceClassification": "GPTBigCodeForSequenceClassification",
        "GPT2ForTokenClassification": "GPTBigCodeForTokenClassification",
    },
    config=_gpt2_config,
    fits=_gpt2_misfit,
    dropped=frozenset({"attn.bias", "attn.masked_bias"}),
    defaults={"activation_function": "gelu_new"},
    # Keys of GPT-2's config that mean nothing to GPTBigCode.
    gone=frozenset(
        {
            *("scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", "summary_type"),
            *("summary_use_proj", "summary_activation", "summary_proj_to_labels"),
            *("summary_first_dropout",),
        }
    ),
    only=1,
    notes={
        "reorder_and_upcast_attn": "reorder_and_upcast_attn is dropped: GPTBigCode rounds the"
        " softmax differently in half precision"
    },
)


def _opt_misfit(old: OldConfig) -> str | None:
    if not old["do_layer_norm_before"] or old["_remove_final_layer_norm"]:
        return "its norms stand behind the attention and the MLP, and GPTBigCode's in front"
    if old["word_embed_proj_dim"] not in (None, old["hidden_size"]):
        return "its embedding is projected (word_embed_proj_dim), and GPTBigCode's is not"
    return None


def _opt_config(old: OldConfig, heads: int, head_dim: int) -> Mapping[str, Any]:
    return {
        "multi_query": True,
        "n_embd": old["hidden_size"],
        "n_layer": old["num_hidden_layers"],
        "n_head": heads,
        "n_inner": old["ffn_dim"],
        "n_positions": old["max_position_embeddings"],
        "layer_norm_epsilon": 1e-5,  # what OPT's class says in its code
        "attn_pdrop": old["attention_dropout"],
        **dict.fromkeys(("resid_pdrop", "embd_pdrop"), old["dropout"]),
        "initializer_range": old["init_std"],
        "scale_attn_weights": True,
        **{k: old[k] for k in ("vocab_size", "activation_function", "tie_word_embeddings")},
        **{k: old[k] for k in ("pad_token_id", "bos_token_id", "eos_token_id")},
    }


OPT_TO_BIGCODE = Rehome(
    target="gpt_bigcode",
    reason="OPT's class has one K/V head per query head; GPTBigCode with multi_query computes the"
    " same function",
    new_layer="transformer.h.{}.{}",
    takes={"attn.c_attn": "qkv"},
    kept={
        **{"self_attn_layer_norm": "ln_1", "self_attn.out_proj": "attn.c_proj"},
        **{"final_layer_norm": "ln_2", "fc1": "mlp.c_fc", "fc2": "mlp.c_proj"},
    },
    outside={
        "embed_tokens.weight": "transformer.wte.weight",
        "embed_positions.weight": "transformer.wpe.weight",
        **{f"final_layer_norm.{p}": f"transformer.ln_f.{p}" for p in ("weight", "bias")},
        **{name: name for name in ("lm_head.weight", "score.weight")},
    },
    skipped={"embed_positions.weight": 2},  # OPT counts positions from 2 on
    classes={
        "OPTForCausalLM": "GPTBigCodeForCausalLM",
        "OPTModel": "GPTBigCodeModel",
        "OPTForSequenceClassification": "GPTBigCodeForSequenceClassification",
    },
    config=_opt_config,
    fits=_opt_misfit,
    made={
        **{f"{name}.bias": 0.0 for name in (*_NAMES, "attn.c_attn")},
        **{f"{name}.weight": 1.0 for name in ("ln_1", "ln_2")},
    },
    made_outside={
        "transformer.ln_f.weight": (1.0, "layers.0.fc2.weight"),
        "transformer.ln_f.bias": (0.0, "layers.0.fc2.weight"),
    },
    defaults={
        **{"ffn_dim": 3072, "activation_function": "relu", "do_layer_norm_before": True},
        **{"attention_dropout": 0.0, "dropout": 0.1, "init_std": 0.02, "pad_token_id": 1},
        **{"bos_token_id": 2, "eos_token_id": 2},
    },
    gone=frozenset(
        {
            *("_remove_final_layer_norm", "attention_dropout", "do_layer_norm_before", "dropout"),
            *("enable_bias", "ffn_dim", "hidden_size", "init_std", "layer_norm_elementwise_affine"),
            *("layerdrop", "max_position_embeddings", "num_attention_heads", "num_hidden_layers"),
            *("word_embed_proj_dim", "prefix"),
        }
    ),
    only=1,
)
