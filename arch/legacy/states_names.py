"""Names of attention tensors of models with other state than K and V alone, see `..names`."""

from dataclasses import replace

from ..tensors.names import G_PROJ, LLAMA, MLA, TensorNames, separate, under
from ..tensors.names import (
    HYBRID as HYBRID,
)
from ..tensors.names import (
    HYBRID_MLA as HYBRID_MLA,
)

LFM3 = replace(G_PROJ, modules={**G_PROJ.modules, "self_attn.gate_proj": "other"}, rest="other")
LFM2 = TensorNames(
    modules=separate("self_attn", o="out_proj")
    | {"self_attn.q_layernorm": "norm", "self_attn.k_layernorm": "norm"},
    rest="other",
)
RECURRENT_GEMMA = TensorNames(modules=separate("temporal_block"), rest="other")
# Shared blocks (Zamba), with adapters of q, k and v in Zamba2.
ZAMBA = TensorNames(
    modules=separate("shared_transf.self_attn") | separate("shared_transformer.self_attn"),
    rest="other",
)
# Qwen 4: an indexer, and connections between layers that are called after the attention.
QWEN4 = replace(
    HYBRID,
    modules={**LLAMA.modules}
    | under("self_attn.indexer", other="index_qk_proj")
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
    modules=separate("self_attn")
    | {f"self_attn.{name}": "other" for name in ("g_proj", "s_gate", "sqk")}
)
_CONVOLUTIONS = {
    **{f"self_attn.{part}_sconv.conv1d": (part, 0) for part in "kv"},
    **{f"attn.{part}_sconv": (part, 0) for part in "kv"},
}
_DYNAMIC = {"weight_proj": 0, "static_w": 1}
INKLING = TensorNames(
    modules={
        **LLAMA.modules,
        **under("attn", q="wq_du", k="wk_dv", v="wv_dv", o="wo_ud"),
        **{f"self_attn.{part}_proj.linear": part for part in "qkvo"},
        **dict.fromkeys(("attn.q_norm", "attn.k_norm"), "norm"),
        **dict.fromkeys(("self_attn.r_proj", "self_attn.rel_logits_proj.proj"), "other"),
        **dict.fromkeys(("attn.wr_du", "attn.rel_logits_proj.proj"), "other"),
        **dict.fromkeys(_CONVOLUTIONS, "other"),
        **dict.fromkeys(("attn_sconv.conv1d", "attn_sconv"), ""),
    },
    key_value=_CONVOLUTIONS,
    rest="other",
)
# Layers that see everything compute what convolves their keys and values from the input, too.
INKLING2 = TensorNames(
    modules={
        **INKLING.modules,
        **{f"attn.{name}": "other" for name in ("attn_sink_proj", "gate_attn")},
        **{f"attn.{name}.scale": "other" for name in ("q_l2_clip", "rel_l2_clip")},
        **{f"attn.{part}_sconv.{name}": "other" for part in "kv" for name in _DYNAMIC},
    },
    key_value={
        **_CONVOLUTIONS,
        **{f"attn.{part}_sconv.{name}": (part, i) for part in "kv" for name, i in _DYNAMIC.items()},
    },
    rest="other",
)
# What a layer reads in a later pass is mixed by gates, which know of no heads.
INKLING2_LOOP = replace(
    INKLING2,
    modules={
        **INKLING2.modules,
        **{
            f"controllers.{read}.{gate}_weight": ""
            for read in ("attn", "k", "v", "mlp")
            for gate in ("down", "gain", "forget")
        },
    },
)
ZAYA = TensorNames(
    modules=under("self_attn.qkv_proj", q="q_proj", k="k_proj", v_current="v_proj_current")
    | {"self_attn.qkv_proj.v_proj_delayed": "v_delayed", "self_attn.o_proj": "o"}
    | {"self_attn.qk_norm.temp": "other"},
    rest="other",
)
MISTRAL_LARGE4 = TensorNames(
    modules=under("attention", q="wq", kv_a="wkv_a_with_mqa", kv_b="wkv_b", o="wo")
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
    modules=under("attn", gqkv="gqkv_proj", o="o_proj")
    | separate("self_attn")
    | {"self_attn.gate_proj": "other"},
    split={"attn.gqkv_proj": {part: f"self_attn.{part}_proj" for part in "kv"}},
)
CPMANT = TensorNames(
    modules=under(
        "self_att.self_attention", q="project_q", k="project_k", v="project_v", o="attention_out"
    )
)
REFORMER = TensorNames(
    modules=under("attention.self_attention", q="query", k="key", v="value")
    | {"attention.self_attention.query_key": "q", "attention.output.dense": "o"}
)
XLNET = TensorNames(
    modules=under("rel_attn", q="q", k="k", v="v", o="o") | {"rel_attn.layer_norm": ""},
    rest="other",
)
# Its mixers are recurrent all: headers are not sorted to parts of attention.
NO_ATTENTION = TensorNames(modules={})
