"""Names of attention tensors of encoders and encoder-decoders, see `names`."""

from dataclasses import replace

from ..tensors.names import BART, BERT, LLAMA, T5, T5_PARTS, TensorNames, separate, under

NLLB_MOE = TensorNames(modules=BART.modules, cross=separate("cross_attention", o="out_proj"))
WAV2VEC2 = TensorNames(modules=separate("attention", o="out_proj"))
SPEECHT5 = TensorNames(modules={**WAV2VEC2.modules, **BART.modules}, cross=BART.cross)
DINOV3 = TensorNames(modules=separate("attention"))
DIA = TensorNames(modules=separate("self_attention"))
RADIO = TensorNames(modules=under("attn", qkv="qkv", o="proj"))
# torch's own module of several heads
TIPS = TensorNames(
    modules={"attn.in_proj_weight": "qkv", "attn.in_proj_bias": "qkv", "attn.out_proj": "o"}
)
NEOMME = TensorNames(
    modules={
        **LLAMA.modules,
        **under("self_attn.output_projection", o="o_proj", other="gate_proj"),
        "self_attn.exclusive_self_attention.alpha": "other",
    }
)
SQUEEZEBERT = TensorNames(
    modules=under("attention", q="query", k="key", v="value")
    | {"post_attention.conv1d": "o", "post_attention.layernorm": ""}
)
# The encoder's attention is another class than the decoder's.
BIGBIRD_PEGASUS = TensorNames(
    modules={**BART.modules}
    | under("self_attn.self", q="query", k="key", v="value")
    | {"self_attn.output": "o"},
    cross=BART.cross,
)
LED = TensorNames(
    modules={**BART.modules}
    | under("self_attn.longformer_self_attn", q="query", k="key", v="value")
    | under("self_attn.longformer_self_attn", other="query_global")
    | dict.fromkeys(
        (f"self_attn.longformer_self_attn.{part}_global" for part in ("key", "value")), "other"
    )
    | {"self_attn.output": "o"},
    cross=BART.cross,
)
PROPHETNET = TensorNames(
    modules={
        path: part
        for stem in ("self_attn", "ngram_self_attn")  # the second in files of before transformers 5
        for path, part in under(
            stem, q="query_proj", k="key_proj", v="value_proj", o="out_proj"
        ).items()
    }
    | {f"{stem}.relative_pos_embeddings": "other" for stem in ("self_attn", "ngram_self_attn")},
    cross=under("cross_attn", q="query_proj", k="key_proj", v="value_proj", o="out_proj"),
)
LONGT5 = TensorNames(
    modules={
        **T5.modules,
        **under("layer.0.LocalSelfAttention", **T5_PARTS),
        **under("layer.0.TransientGlobalSelfAttention", **T5_PARTS),
        "layer.0.TransientGlobalSelfAttention.global_relative_attention_bias": "other",
        "layer.0.TransientGlobalSelfAttention.global_input_layer_norm": "norm",
    },
    cross=T5.cross,
)
_PIX2STRUCT = {**T5_PARTS, "q": "query", "k": "key", "v": "value", "o": "output"}
PIX2STRUCT = TensorNames(
    modules=under("self_attention.attention", **_PIX2STRUCT),
    cross=under("encoder_decoder_attention.attention", **_PIX2STRUCT),
)
CHINESE_CLIP = replace(BERT, modules={**BERT.modules, **BART.modules})
# A norm before the attention, under its own module.
BERT_NORM_FIRST = TensorNames(
    modules={**BERT.modules, "attention.ln": "", "attention.LayerNorm": ""},
    cross={**BERT.cross, "crossattention.ln": "", "crossattention.LayerNorm": ""},
)
# With projections of their own beside q, k and v: Longformer, LUKE, Nyströmformer.
BERT_AND_MORE = replace(BERT, rest="other")
ALBERT = TensorNames(
    modules=under("albert_layers.#.attention", q="query", k="key", v="value", o="dense")
    | {"albert_layers.#.attention.LayerNorm": ""}
)
MPNET = TensorNames(
    modules=under("attention.attn", q="q", k="k", v="v", o="o") | {"attention.LayerNorm": ""}
)
GTE = TensorNames(modules=under("attention", qkv="qkv_proj", o="o_proj"))
DISTILBERT = TensorNames(modules=under("attention", q="q_lin", k="k_lin", v="v_lin", o="out_lin"))
DEBERTA = TensorNames(
    modules=under("attention.self", qkv="in_proj")
    | {"attention.self.pos_proj": "other", "attention.self.pos_q_proj": "other"}
    | {"attention.output.dense": "o"}
    | {"attention.self.q_bias": "q", "attention.self.v_bias": "v"}
    | {"attention.output.LayerNorm": ""},
)
DEBERTA_V2 = TensorNames(
    modules=under("attention.self", q="query_proj", k="key_proj", v="value_proj")
    | {"attention.self.pos_key_proj": "other", "attention.self.pos_query_proj": "other"}
    | {"attention.output.dense": "o", "attention.output.LayerNorm": ""},
)
MODERNBERT = TensorNames(modules=under("attn", qkv="Wqkv", o="Wo"))
# Its attentions are numbered apart from the rest of its layers.
XLM = TensorNames(modules={"q_lin": "q", "k_lin": "k", "v_lin": "v", "out_lin": "o"})
