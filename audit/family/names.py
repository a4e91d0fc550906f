"""Names of attention tensors on disk: which module of a layer is which part.

Only the end of a name matters, after the layer's number: `self_attn.k_proj` in
`language_model.model.layers.17.self_attn.k_proj.weight`. A fused projection is written with the
letters of what it holds, in order, such as `qkv`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorNames:
    """`modules` maps a module's path in its layer to the part it computes, `cross` does so for
    cross-attention. `near` are the prefixes under which nothing unknown may stand. `transposed`:
    the weights are stored [in, out] (GPT-2's Conv1D). `rest` is the part of what stands there
    without being named, such as an indexer; None: it is a stranger. `key_value` are modules beside
    the projections that hold numbers of K or V heads: of which, and along which axis.

    `fused` says how a `qkv` lies: `parts` is [q | k | v], `heads` has for each K/V head its query
    heads, its key and its value, `quarters` has four times [q | v | k] (CodeGen). Without the flag
    `parts_if` of the config, where it names one, it is `heads`."""

    modules: Mapping[str, str]
    cross: Mapping[str, str] = field(default_factory=dict)
    rest: str | None = None
    transposed: bool = False
    fused: str = "parts"
    parts_if: str | None = None
    key_value: Mapping[str, tuple[str, int]] = field(default_factory=dict)

    def fused_by(self, config: Mapping[str, Any]) -> str:
        """How a fused projection lies in a model of this config."""
        return self.fused if self.parts_if is None or config.get(self.parts_if) else "heads"

    @property
    def near(self) -> frozenset[str]:
        """The first words of all module paths but those that a layer shares with its MLP."""
        return frozenset(
            path.rsplit(".", 1)[0] + "." for path in (*self.modules, *self.cross) if "." in path
        )


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
# The same with what else some classes keep beside their projections.
GATE_PROJ = replace(LLAMA, modules={**LLAMA.modules, "self_attn.gate_proj": "other"})
G_PROJ = replace(LLAMA, modules={**LLAMA.modules, "self_attn.g_proj": "other"})
BEAM = replace(GATE_PROJ, modules={**GATE_PROJ.modules, "self_attn.gate_bias": "other"})
BITNET = replace(LLAMA, modules={**LLAMA.modules, "self_attn.attn_sub_norm": "norm"})
DIFFLLAMA = replace(
    LLAMA,
    modules={
        **LLAMA.modules,
        **{f"self_attn.lambda_{part}{number}": "other" for part in "qk" for number in "12"},
    },
)
DOGE = replace(
    LLAMA, modules={**LLAMA.modules, "self_attn.A": "other", "self_attn.dt_proj": "other"}
)
FLINT = replace(LLAMA, modules={**LLAMA.modules, "self_attn.softmax_offset": "other"})
MIMO = replace(LLAMA, modules={**LLAMA.modules, "self_attn.attention_sink_bias": "other"})
MOSHI = TensorNames(
    modules=_separate("self_attn") | {f"self_attn.{p}_proj.linear": p for p in "qkvo"}
)
SARVAM = TensorNames(
    modules=_under("attention", qkv="query_key_value", o="dense")
    | {"attention.query_layernorm": "norm", "attention.key_layernorm": "norm"}
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
GPT_BIGCODE = TensorNames(modules=_under("attn", qkv="c_attn", o="c_proj"), fused="heads")
GPT_NEO = TensorNames(modules=_separate("attn.attention", o="out_proj"))
GPT_NEOX = TensorNames(modules=_under("attention", qkv="query_key_value", o="dense"), fused="heads")
GPT_NEOX_JAPANESE = replace(  # the bias is in the last layer only
    GPT_NEOX, modules={**GPT_NEOX.modules, "attention.dense_bias": "other"}
)
GPTJ = TensorNames(modules=_separate("attn", o="out_proj"))
BLOOM = TensorNames(
    modules=_under("self_attention", qkv="query_key_value", o="dense"), fused="heads"
)
PERSIMMON = TensorNames(
    modules=_under("self_attn", qkv="query_key_value", o="dense")
    | {"self_attn.q_layernorm": "norm", "self_attn.k_layernorm": "norm"},
    fused="heads",
)
CODEGEN = TensorNames(modules=_under("attn", qkv="qkv_proj", o="out_proj"), fused="quarters")
CTRL = TensorNames(
    modules=_under("multi_head_attention", q="Wq", k="Wk", v="Wv", o="dense"),
)
MPT = TensorNames(modules=_under("attn", qkv="Wqkv", o="out_proj"))
DBRX = TensorNames(modules=_under("norm_attn_norm.attn", qkv="Wqkv", o="out_proj"))
BART = TensorNames(
    modules=_separate("self_attn", o="out_proj"), cross=_separate("encoder_attn", o="out_proj")
)
# NLLB-MoE, SeamlessM4T
CROSS_ATTENTION = TensorNames(
    modules=BART.modules, cross=_separate("cross_attention", o="out_proj")
)
LED = TensorNames(
    modules={
        **BART.modules,
        **_under("self_attn.longformer_self_attn", q="query", k="key", v="value"),
        **dict.fromkeys(
            (f"self_attn.longformer_self_attn.{part}_global" for part in ("query", "key", "value")),
            "other",
        ),
        "self_attn.output": "o",
    },
    cross=BART.cross,
)
BIGBIRD_PEGASUS = TensorNames(
    modules={
        **BART.modules,
        **_under("self_attn.self", q="query", k="key", v="value"),
        "self_attn.output": "o",
    },
    cross=BART.cross,
)
PROPHETNET = TensorNames(
    modules=_under("self_attn", q="query_proj", k="key_proj", v="value_proj", o="out_proj")
    | {"self_attn.relative_pos_embeddings": "other"},
    cross=_under("cross_attn", q="query_proj", k="key_proj", v="value_proj", o="out_proj"),
)
T5 = TensorNames(
    modules=_under("layer.0.SelfAttention", q="q", k="k", v="v", o="o")
    | {"layer.0.SelfAttention.relative_attention_bias": "other"},
    cross=_under("layer.1.EncDecAttention", q="q", k="k", v="v", o="o"),
)
LONGT5 = TensorNames(
    modules={
        **T5.modules,
        **{
            path: part
            for kind in ("LocalSelfAttention", "TransientGlobalSelfAttention")
            for path, part in (
                _under(f"layer.0.{kind}", q="q", k="k", v="v", o="o")
                | {f"layer.0.{kind}.relative_attention_bias": "other"}
                | {f"layer.0.{kind}.global_relative_attention_bias": "other"}
                | {f"layer.0.{kind}.global_input_layer_norm": "norm"}
            ).items()
        },
    },
    cross=T5.cross,
)
BERT = TensorNames(
    modules=_under("attention.self", q="query", k="key", v="value")
    | {
        "attention.output.dense": "o",
        "attention.output.LayerNorm": "",
        "attention.output.norm": "",
    },
    cross=_under("crossattention.self", q="query", k="key", v="value")
    | {"crossattention.output.dense": "o", "crossattention.output.LayerNorm": ""},
)
# A norm before the attention, under its own module.
BERT_NORM_FIRST = TensorNames(
    modules={**BERT.modules, "attention.ln": "", "attention.LayerNorm": ""},
    cross={**BERT.cross, "crossattention.ln": "", "crossattention.LayerNorm": ""},
)
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
XLM = TensorNames(modules={})  # its attentions are numbered apart from its layers
CHATGLM = TensorNames(
    modules=_under("self_attention", qkv="query_key_value", o="dense"),
    parts_if="multi_query_attention",
)
INTERNLM2 = TensorNames(modules=_under("attention", qkv="wqkv", o="wo"), fused="heads")
BAICHUAN = TensorNames(modules=_under("self_attn", qkv="W_pack", o="o_proj"))
OPENELM = TensorNames(
    modules=_under("attn", qkv="qkv_proj", o="out_proj")
    | {"attn.q_norm": "norm", "attn.k_norm": "norm"}
)
PHI_MSFT = TensorNames(modules=_under("mixer", qkv="Wqkv", o="out_proj"))
PHI3_SMALL = TensorNames(
    modules=_under("self_attn", qkv="query_key_value", o="dense"), fused="heads"
)
GROK = TensorNames(
    modules=_separate("attn") | _under("multi_head_attention", q="query", k="key", v="value")
)
# Attention beside recurrent mixers, or with an indexer or gates that no part names.
HYBRID = TensorNames(modules=LLAMA.modules, rest="other")
HYBRID_MLA = TensorNames(modules=MLA.modules, rest="other")
LFM3 = replace(G_PROJ, modules={**G_PROJ.modules, "self_attn.gate_proj": "other"}, rest="other")
LFM2 = TensorNames(
    modules=_separate("self_attn", o="out_proj")
    | {"self_attn.q_layernorm": "norm", "self_attn.k_layernorm": "norm"},
    rest="other",
)
NEMOTRON_H = TensorNames(modules=_separate("mixer"), rest="other")
RECURRENT_GEMMA = TensorNames(modules=_separate("temporal_block"), rest="other")
ZAMBA = TensorNames(modules=_separate("shared_transf.self_attn"))
ZAMBA2 = TensorNames(modules=_separate("shared_transformer.self_attn"))
# Qwen 4: an indexer, and connections between layers that are called after the attention.
QWEN4 = replace(
    HYBRID,
    modules={**LLAMA.modules}
    | _under("self_attn.indexer", other="index_qk_proj")
    | {"self_attn.indexer.q_layernorm": "other", "self_attn.indexer.k_layernorm": "other"}
    | {
        f"attn_hyper_connection.{name}": ""
        for name in (
            *("block_inject_weight", "hc_norm"),
            *("input_mix_weight_down", "input_mix_weight_up"),
        )
    },
)
DORY = TensorNames(
    modules=_separate("self_attn")
    | {f"self_attn.{name}": "other" for name in ("g_proj", "s_gate", "sqk")}
)
INKLING = TensorNames(
    modules={**LLAMA.modules}
    | {"self_attn.r_proj": "other", "self_attn.rel_logits_proj.proj": "other"}
    | {"self_attn.k_sconv.conv1d": "other", "self_attn.v_sconv.conv1d": "other"}
    | {"attn_sconv.conv1d": ""},
    key_value={f"self_attn.{part}_sconv.conv1d": (part, 0) for part in "kv"},
)
# No name of a tensor is known: headers are not sorted to layers, and parts follow the config.
UNKNOWN = TensorNames(modules={})
