"""Names of attention tensors on disk: which module of a layer is which part.

Only the end of a name matters, after the layer's number: `self_attn.k_proj` in
`language_model.model.layers.17.self_attn.k_proj.weight`. A fused projection is written with the
letters of what it holds, in order, such as `qkv`; g is a gate on what o reads. What stands behind
an underscore tells several matrices of one part apart, such as `q_a` and `v_delayed`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorNames:
    """`modules` maps a module's path in its layer to the part it computes, `cross` does so for
    cross-attention. In a path `#` is the number of an attention among several in one layer. `near`
    are the prefixes under which nothing unknown may stand. `transposed`: the weights are stored
    [in, out] (GPT-2's Conv1D). `rest` is the part of what stands there without being named, such as
    an indexer; None: it is a stranger."""

    modules: Mapping[str, str]
    cross: Mapping[str, str] = field(default_factory=dict)
    rest: str | None = None
    transposed: bool = False

    @property
    def near(self) -> frozenset[str]:
        """The first words of all module paths but those that a layer shares with its MLP."""
        return _prefixes((*self.modules, *self.cross))

    @property
    def near_cross(self) -> frozenset[str]:
        """Those of cross-attention alone."""
        return _prefixes((*self.cross,)) - _prefixes((*self.modules,))

    @property
    def numbered(self) -> bool:
        """Whether a layer holds several attentions with numbers."""
        return any("#" in path for path in (*self.modules, *self.cross))


@lru_cache
def _prefixes(paths: tuple[str, ...]) -> frozenset[str]:
    return frozenset(path.rsplit(".", 1)[0] + "." for path in paths if "." in path)


# Buffers that older files carry under an attention module; no parameters.
BUFFERS = frozenset({"bias", "masked_bias", "rotary_emb.inv_freq", "inv_freq", "attn_dropout"})


def _under(prefix: str, **parts: str) -> dict[str, str]:
    """`_under("self_attn", q="q_proj")` -> {"self_attn.q_proj": "q"}."""
    return {f"{prefix}.{module}": part for part, module in parts.items()}


def _separate(prefix: str, o: str = "o_proj", **more: str) -> dict[str, str]:
    return _under(prefix, q="q_proj", k="k_proj", v="v_proj", o=o, **more)


_QK_NORM = {"self_attn.q_norm": "norm", "self_attn.k_norm": "norm"}

LLAMA = TensorNames(
    modules={**_separate("self_attn"), **_QK_NORM, "self_attn.sinks": "other"},
    cross=_separate("cross_attn") | {"cross_attn.q_norm": "norm", "cross_attn.k_norm": "norm"},
)
MLA = TensorNames(
    modules=_under(
        "self_attn", q="q_proj", q_a="q_a_proj", kv_a="kv_a_proj_with_mqa", kv_b="kv_b_proj"
    )
    | {
        "self_attn.q_b_proj": "q",
        "self_attn.o_proj": "o",
        "self_attn.q_a_layernorm": "norm",
        "self_attn.kv_a_layernorm": "norm",
    },
)
PHI = TensorNames(
    modules=_separate("self_attn", o="dense")
    | {"self_attn.q_layernorm": "norm", "self_attn.k_layernorm": "norm"}
)
STABLELM = TensorNames(
    modules=_separate("self_attn")
    | {"self_attn.q_layernorm.norms": "norm", "self_attn.k_layernorm.norms": "norm"}
)
QKV_PROJ = TensorNames(modules=_under("self_attn", qkv="qkv_proj", o="o_proj"))
HUNYUAN = TensorNames(
    modules=_separate("self_attn")
    | {"self_attn.query_layernorm": "norm", "self_attn.key_layernorm": "norm"}
)
GPT2 = TensorNames(
    modules=_under("attn", qkv="c_attn", o="c_proj"),
    cross=_under("crossattention", q="q_attn", kv="c_attn", o="c_proj"),
    transposed=True,
)
GPT_BIGCODE = replace(GPT2, transposed=False)
GPT_NEO = TensorNames(modules=_separate("attn.attention", o="out_proj"))
GPT_NEOX = TensorNames(modules=_under("attention", qkv="query_key_value", o="dense"))
GPTJ = TensorNames(modules=_separate("attn", o="out_proj"))
BLOOM = TensorNames(modules=_under("self_attention", qkv="query_key_value", o="dense"))
PERSIMMON = TensorNames(
    modules=_under("self_attn", qkv="query_key_value", o="dense")
    | {"self_attn.q_layernorm": "norm", "self_attn.k_layernorm": "norm"}
)
CODEGEN = TensorNames(modules=_under("attn", qkv="qkv_proj", o="out_proj"))
CTRL = TensorNames(
    modules=_under("multi_head_attention", q="Wq", k="Wk", v="Wv", o="dense"),
)
MPT = TensorNames(modules=_under("attn", qkv="Wqkv", o="out_proj"))
MIXER = TensorNames(modules=_under("mixer", qkv="Wqkv", o="out_proj"))
DBRX = TensorNames(modules=_under("norm_attn_norm.attn", qkv="Wqkv", o="out_proj"))
BART = TensorNames(
    modules=_separate("self_attn", o="out_proj") | {"self_attn.inner_attn_ln": "norm"},  # Kosmos-2
    cross=_separate("encoder_attn", o="out_proj") | {"encoder_attn.inner_attn_ln": "norm"},
)
NLLB_MOE = TensorNames(modules=BART.modules, cross=_separate("cross_attention", o="out_proj"))
WAV2VEC2 = TensorNames(modules=_separate("attention", o="out_proj"))
# The encoder's attention is another class than the decoder's.
BIGBIRD_PEGASUS = TensorNames(
    modules={**BART.modules}
    | _under("self_attn.self", q="query", k="key", v="value")
    | {"self_attn.output": "o"},
    cross=BART.cross,
)
LED = TensorNames(
    modules={**BART.modules}
    | _under("self_attn.longformer_self_attn", q="query", k="key", v="value")
    | _under("self_attn.longformer_self_attn", other="query_global")
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
        for path, part in _under(
            stem, q="query_proj", k="key_proj", v="value_proj", o="out_proj"
        ).items()
    }
    | {f"{stem}.relative_pos_embeddings": "other" for stem in ("self_attn", "ngram_self_attn")},
    cross=_under("cross_attn", q="query_proj", k="key_proj", v="value_proj", o="out_proj"),
)
_T5 = {"q": "q", "k": "k", "v": "v", "o": "o", "other": "relative_attention_bias"}
T5 = TensorNames(
    modules=_under("layer.0.SelfAttention", **_T5),
    cross=_under("layer.1.EncDecAttention", **_T5),
)
LONGT5 = TensorNames(
    modules={
        **T5.modules,
        **_under("layer.0.LocalSelfAttention", **_T5),
        **_under("layer.0.TransientGlobalSelfAttention", **_T5),
        "layer.0.TransientGlobalSelfAttention.global_relative_attention_bias": "other",
        "layer.0.TransientGlobalSelfAttention.global_input_layer_norm": "norm",
    },
    cross=T5.cross,
)
_PIX2STRUCT = {**_T5, "q": "query", "k": "key", "v": "value", "o": "output"}
PIX2STRUCT = TensorNames(
    modules=_under("self_attention.attention", **_PIX2STRUCT),
    cross=_under("encoder_decoder_attention.attention", **_PIX2STRUCT),
)


def _bert(prefix: str) -> dict[str, str]:
    return _under(f"{prefix}.self", q="query", k="key", v="value") | {
        f"{prefix}.output.dense": "o",
        f"{prefix}.output.LayerNorm": "",
        f"{prefix}.output.norm": "",
    }


BERT = TensorNames(modules=_bert("attention"), cross=_bert("crossattention"))
CHINESE_CLIP = replace(BERT, modules={**BERT.modules, **BART.modules})
# With projections of their own beside q, k and v: Longformer, LUKE, Nyströmformer.
BERT_AND_MORE = replace(BERT, rest="other")
ALBERT = TensorNames(
    modules=_under("albert_layers.#.attention", q="query", k="key", v="value", o="dense")
    | {"albert_layers.#.attention.LayerNorm": ""}
)
MPNET = TensorNames(
    modules=_under("attention.attn", q="q", k="k", v="v", o="o") | {"attention.LayerNorm": ""}
)
GTE = TensorNames(modules=_under("attention", qkv="qkv_proj", o="o_proj"))
VIT = TensorNames(
    modules=_under("attention.attention", q="query", k="key", v="value")
    | {"attention.output.dense": "o"}
)
DISTILBERT = TensorNames(modules=_under("attention", q="q_lin", k="k_lin", v="v_lin", o="out_lin"))
DEBERTA = TensorNames(
    modules=_under("attention.self", qkv="in_proj")
    | {"attention.self.pos_proj": "other", "attention.self.pos_q_proj": "other"}
    | {"attention.output.dense": "o"}
    | {"attention.self.q_bias": "q", "attention.self.v_bias": "v"}
    | {"attention.output.LayerNorm": ""},
)
DEBERTA_V2 = TensorNames(
    modules=_under("attention.self", q="query_proj", k="key_proj", v="value_proj")
    | {"attention.self.pos_key_proj": "other", "attention.self.pos_query_proj": "other"}
    | {"attention.output.dense": "o", "attention.output.LayerNorm": ""},
)
MODERNBERT = TensorNames(modules=_under("attn", qkv="Wqkv", o="Wo"))
MODERNBERT_DECODER = TensorNames(modules=_separate("attn", o="Wo"))
# Its attentions are numbered apart from the rest of its layers.
XLM = TensorNames(modules={"q_lin": "q", "k_lin": "k", "v_lin": "v", "out_lin": "o"})
CHATGLM = TensorNames(modules=_under("self_attention", qkv="query_key_value", o="dense"))
INTERNLM2 = TensorNames(modules=_under("attention", qkv="wqkv", o="wo"))
BAICHUAN = TensorNames(modules=_under("self_attn", qkv="W_pack", o="o_proj"))
OPENELM = TensorNames(
    modules=_under("attn", qkv="qkv_proj", o="out_proj")
    | {"attn.q_norm": "norm", "attn.k_norm": "norm"}
)
PHI_MSFT = MIXER
PHI3_SMALL = TensorNames(modules=_under("self_attn", qkv="query_key_value", o="dense"))
GROK = TensorNames(
    modules=_separate("attn") | _under("multi_head_attention", q="query", k="key", v="value")
)
# Attention beside recurrent mixers, or with an indexer or gates that no part names.
HYBRID = TensorNames(modules=LLAMA.modules, rest="other")
HYBRID_MLA = TensorNames(modules=MLA.modules, rest="other")
LFM2 = TensorNames(
    modules=_separate("self_attn", o="out_proj")
    | {"self_attn.q_layernorm": "norm", "self_attn.k_layernorm": "norm"},
    rest="other",
)
NEMOTRON_H = TensorNames(modules=_separate("mixer"), rest="other")
RECURRENT_GEMMA = TensorNames(modules=_separate("temporal_block"), rest="other")
# Shared blocks (Zamba), with adapters of q, k and v in Zamba2.
ZAMBA = TensorNames(
    modules=_separate("shared_transf.self_attn") | _separate("shared_transformer.self_attn"),
    rest="other",
)
BITNET = TensorNames(modules={**LLAMA.modules, "self_attn.attn_sub_norm": "norm"})
DOTS3 = TensorNames(
    modules={**MLA.modules, "self_attn.k_rope_only_layernorm": "norm"}, rest="other"
)
EXAONE = TensorNames(modules={**GPT_NEO.modules, **LLAMA.modules})
GPT_NEOX_JAPANESE = TensorNames(modules={**GPT_NEOX.modules, "attention.dense_bias": "other"})
LINEAR_INSIDE = TensorNames(  # Moshi
    modules=_under(
        "self_attn", q="q_proj.linear", k="k_proj.linear", v="v_proj.linear", o="o_proj.linear"
    )
)
COSMOS3 = TensorNames(
    modules=_under("self_attn", q="to_q", k="to_k", v="to_v", o="to_out")
    | {"self_attn.norm_q": "norm", "self_attn.norm_k": "norm"}
    | {**LLAMA.modules}
)
MOLMO2 = TensorNames(modules=_under("self_attn", qkv="att_proj", o="attn_out") | _QK_NORM)
SARVAM_MOE = TensorNames(
    modules=_under("attention", qkv="query_key_value", o="dense")
    | {"attention.query_layernorm": "norm", "attention.key_layernorm": "norm"}
    | {**LLAMA.modules}
)
JETMOE = TensorNames(modules=_under("self_attention", kv="kv_proj"), rest="other")
LONGCAT = TensorNames(
    modules={path.replace("self_attn.", "self_attn.#."): p for path, p in MLA.modules.items()}
)
INKLING = TensorNames(
    modules={
        **LLAMA.modules,
        **_under("attn", q="wq_du", k="wk_dv", v="wv_dv", o="wo_ud"),
        **_under("self_attn", q="q_proj.linear", k="k_proj.linear", v="v_proj.linear"),
        "self_attn.o_proj.linear": "o",
        **dict.fromkeys(("attn.q_norm", "attn.k_norm"), "norm"),
    },
    rest="other",
)
ZAYA = TensorNames(
    modules=_under("self_attn.qkv_proj", q="q_proj", k="k_proj", v_current="v_proj_current")
    | {"self_attn.qkv_proj.v_proj_delayed": "v_delayed", "self_attn.o_proj": "o"}
    | {"self_attn.qk_norm.temp": "other"},
    rest="other",
)
DEEPSEEK_V4 = TensorNames(
    modules={
        path: part
        for stem in ("attn", "self_attn")
        for path, part in {
            **_under(stem, q_a="wq_a", q_b="wq_b", k="wkv", o_a="wo_a", o_b="wo_b"),
            **_under(stem, q_a="q_a_proj", q_b="q_b_proj", k="kv_proj", o_a="o_a_proj"),
            **{f"{stem}.o_b_proj": "o_b"},
            **dict.fromkeys((f"{stem}.{n}" for n in ("norm", "q_norm")), "norm"),
            **dict.fromkeys((f"{stem}.{n}" for n in ("kv_norm", "q_a_norm")), "norm"),
        }.items()
    },
    rest="other",
)
MISTRAL_LARGE4 = TensorNames(
    modules=_under("attention", q="wq", kv_a="wkv_a_with_mqa", kv_b="wkv_b", o="wo")
    | {"attention.o_proj": "o", "attention.kv_a_norm": "norm"}
    | {**MLA.modules},
    rest="other",
)
# Its linear layers bear the same names; what is no attention is sorted by the config.
BAILING = TensorNames(
    modules={path.replace("self_attn.", "attention."): part for path, part in MLA.modules.items()}
    | {"attention.dense": "o", **MLA.modules},
    rest="other",
)
HRM = TensorNames(
    modules=_under("attn", gqkv="gqkv_proj", o="o_proj")
    | _separate("self_attn")
    | {"self_attn.gate_proj": "other"}
)
CPMANT = TensorNames(
    modules=_under(
        "self_att.self_attention", q="project_q", k="project_k", v="project_v", o="attention_out"
    )
)
REFORMER = TensorNames(
    modules=_under("attention.self_attention", q="query", k="key", v="value")
    | {"attention.self_attention.query_key": "q", "attention.output.dense": "o"}
)
XLNET = TensorNames(
    modules=_under("rel_attn", q="q", k="k", v="v", o="o") | {"rel_attn.layer_norm": ""},
    rest="other",
)
# Its mixers are recurrent all: headers are not sorted to parts of attention.
NO_ATTENTION = TensorNames(modules={})
