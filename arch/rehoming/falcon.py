"""Falcon with a K/V head per query head (Falcon-RW) -> Falcon with one for all (multi_query)."""

from .rehome import Rehome

_KEPT = (
    *("input_layernorm", "post_attention_layernorm", "self_attention.dense"),
    *("mlp.dense_h_to_4h", "mlp.dense_4h_to_h", "ln_attn", "ln_mlp"),
)

FALCON_TO_MULTI_QUERY = Rehome(
    target="falcon",
    reason="Falcon's older architecture has one K/V head per query head, or, with multi_query, one"
    " for all",
    new_layer="transformer.h.{}.{}",
    takes={"self_attention.query_key_value": "qkv"},
    kept={name: name for name in _KEPT},
    outside={
        "word_embeddings.weight": "transformer.word_embeddings.weight",
        **{f"ln_f.{p}": f"transformer.ln_f.{p}" for p in ("weight", "bias")},
        **{name: name for name in ("lm_head.weight", "score.weight", "qa_outputs.weight")},
        **{name: name for name in ("qa_outputs.bias", "classifier.weight", "classifier.bias")},
    },
    classes={
        f"Falcon{kind}": f"Falcon{kind}"
        for kind in (
            *("ForCausalLM", "Model", "ForSequenceClassification", "ForTokenClassification"),
            "ForQuestionAnswering",
        )
    },
    config=lambda old, heads, head_dim: {"multi_query": True, "num_kv_heads": 1},
    fits=lambda old: "its new decoder has K/V heads" if old["new_decoder_architecture"] else None,
    only=1,
)
