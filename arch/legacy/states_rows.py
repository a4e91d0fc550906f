"""The rows of types with recurrent, indexed, compressed or otherwise own state.

What a row claims was measured on models that transformers 5.24 builds and runs.
"""

from dataclasses import replace

from .. import tying
from ..attention import layer_kinds as kinds
from ..attention import shape
from ..attention.layer_kinds import FULL, SLIDING
from ..decoders.deepseek import (
    CSA,
    DEEPSEEK_V4_TENSORS,
    DOTS3_TENSORS,
    HCA,
    deepseek_v4_kinds,
    dots3_kinds,
    gated_query,
)
from ..decoders.hunyuan import every_fourth_owns, gate_and_sinks
from ..decoders.kimi import kimi_kinds
from ..decoders.nemotron import NEMOTRON_H_TENSORS, patterned
from ..decoders.nemotron import NEMOTRON_KEYS as _NEMOTRON
from ..decoders.olmo import olmo_kinds
from ..states import gated, indexed, linear, mamba
from ..states import kinds as rules
from ..states.hybrid import (
    CONV,
    HYBRID,
    HYBRID_SLIDING,
    INDEXED,
    LINEAR,
    NOTHING,
    hybrid,
    latent,
    nothing,
    plain,
)
from ..states.hybrid import (
    LAYER_TYPES as _LAYER_TYPES,
)
from ..states.mamba import BAMBA_KEYS as _BAMBA
from . import states_names as names
from . import states_own as own
from . import states_unusual as unusual
from .row import Family

_BIASED = Family(
    names=names.HYBRID, qkv_bias="attention_bias", o_bias="attention_bias", aliases=_LAYER_TYPES
)
_FREE = Family(names=names.HYBRID, aliases=_LAYER_TYPES)
_DSA = Family(names=names.HYBRID_MLA, kinds=rules.all_of(INDEXED))

_MAMBA2 = {
    **{"expand": "expand", "n": "state_size", "groups": "n_groups", "kernel": "conv_kernel"},
    **{"heads": "num_heads", "head_dim": "head_dim", "conv_bias": "use_conv_bias"},
    **{"in_bias": "use_bias", "out_bias": "use_bias"},
}
_ZAMBA2 = {
    **{"expand": "mamba_expand", "n": "mamba_d_state", "groups": "mamba_ngroups"},
    **{"kernel": "mamba_d_conv", "heads": "n_mamba_heads"},  # its convolution always has a bias
    **{"in_bias": "add_bias_linear", "out_bias": "add_bias_linear"},
}
_FALCON_H1 = {**_BAMBA, "out_bias": "projectors_bias"}


_MAMBA1_ROW = replace(
    _FREE, kinds=rules.all_of(LINEAR), build=hybrid({LINEAR: mamba.mamba1}, written=False)
)
_INKLING_KEYS = ("num_key_value_heads", "swa_num_key_value_heads")
_INKLING = {HYBRID: unusual.inkling(second=False), HYBRID_SLIDING: unusual.inkling(second=False)}
_INKLING2 = {HYBRID: unusual.inkling(second=True), HYBRID_SLIDING: unusual.inkling(second=True)}
_GATED = {FULL: gated.by_query, LINEAR: linear.gated_delta_net}
_QWEN3_NEXT = replace(
    _BIASED,
    norm="head",
    kinds=rules.every_nth(4, FULL, LINEAR, "full_attention_interval"),
    build=hybrid(_GATED),
)
_BAMBA_LAYERS = {FULL: plain, LINEAR: mamba.mamba2(_BAMBA)}
_LFM2 = {FULL: plain, CONV: linear.short_convolution}

ROWS: dict[str, Family] = {
    "mamba": _MAMBA1_ROW,
    "falcon_mamba": _MAMBA1_ROW,
    "mamba2": replace(
        _FREE,
        kinds=rules.all_of(LINEAR),
        build=hybrid({LINEAR: mamba.mamba2(_MAMBA2)}, written=False),
    ),
    "jamba": replace(
        _FREE,
        kinds=rules.jamba_kinds,
        build=hybrid({FULL: plain, LINEAR: mamba.mamba1_of_hybrid(normed=True)}, written=False),
    ),
    "bamba": replace(
        _BIASED,
        kinds=rules.listed("attn_layer_indices", FULL, LINEAR, absent=LINEAR),
        build=hybrid(_BAMBA_LAYERS, written=False),
    ),
    "granitemoehybrid": replace(_BIASED, kinds=rules.all_of(LINEAR), build=hybrid(_BAMBA_LAYERS)),
    "falcon_h1": replace(
        _BIASED,
        kinds=rules.all_of(HYBRID),
        build=hybrid(
            {
                HYBRID: unusual.beside(
                    plain,
                    mamba.mamba2(_FALCON_H1, width="mamba_d_ssm", gated_norm="mamba_rms_norm"),
                )
            },
            written=False,
        ),
    ),
    "nemotron_h": replace(
        _FREE,
        names=NEMOTRON_H_TENSORS,
        tied=tying.never,
        build=patterned(hybrid({FULL: plain, LINEAR: mamba.mamba2(_NEMOTRON), NOTHING: nothing})),
        aliases={
            **_LAYER_TYPES,
            **{"n_groups": ("mamba_n_groups",), "conv_kernel": ("mamba_d_conv",)},
            **{"use_conv_bias": ("mamba_conv_bias",)},
        },
    ),
    "zamba": replace(
        _FREE,
        names=names.ZAMBA,
        kinds=rules.zamba_kinds,
        build=unusual.zamba(mamba.mamba1_of_hybrid(normed=False)),
    ),
    "zamba2": replace(
        _FREE,
        names=names.ZAMBA,
        kinds=rules.fixed_list(*rules.ZAMBA2_KINDS),
        aliases={  # names in Zyphra's own files
            **_LAYER_TYPES,
            **{"mamba_d_state": ("state_size",), "mamba_d_conv": ("conv_dimension",)},
            **{"mamba_expand": ("expansion_factor",), "adapter_rank": ("lora_rank",)},
        },
        build=unusual.zamba(mamba.mamba2(_ZAMBA2)),
    ),
    "qwen3_next": _QWEN3_NEXT,
    "qwen3_5_text": _QWEN3_NEXT,
    "qwen3_5_moe_text": _QWEN3_NEXT,
    "lara_mini": replace(
        _BIASED,
        norm="head",
        kinds=rules.lara_kinds,
        build=hybrid({FULL: plain, SLIDING: plain, LINEAR: linear.gated_delta_net}),
    ),
    "olmo_hybrid": replace(
        _BIASED,
        norm="heads",
        kinds=olmo_kinds,
        build=hybrid({FULL: plain, LINEAR: linear.gated_delta_net}),
    ),
    "qwen4_exp_text": replace(
        _BIASED,
        names=names.QWEN4,
        norm="head",
        kinds=rules.every_nth(4, INDEXED, LINEAR, "full_attention_interval"),
        build=linear.with_ngrams(
            hybrid(
                {
                    INDEXED: gated.indexed_by_query,
                    FULL: gated.indexed_by_query,
                    LINEAR: linear.gated_delta_net,
                }
            )
        ),
    ),
    "kimi_linear": Family(
        names=names.HYBRID_MLA,
        tied=tying.never,
        kinds=kimi_kinds,
        build=hybrid({FULL: latent, LINEAR: linear.kimi_delta}),
    ),
    "bailing_hybrid": Family(
        tied=tying.never,
        names=names.BAILING,
        kinds=rules.every_nth(6, FULL, LINEAR, "layer_group_size"),
        build=hybrid({FULL: gated.latent_per_head, LINEAR: linear.bailing_delta}),
    ),
    "minimax": replace(
        _FREE,
        kinds=rules.at(0, 2, FULL, LINEAR),
        build=hybrid({FULL: plain, LINEAR: linear.lightning}),
    ),
    "recurrent_gemma": Family(
        names=names.RECURRENT_GEMMA,
        qkv_bias="attention_bias",
        o_bias=True,
        kinds=rules.recurrent_gemma_kinds,
        build=hybrid({SLIDING: plain, LINEAR: linear.rg_lru}, written=False),
    ),
    "lfm2": replace(
        _FREE,
        names=names.LFM2,
        norm="head",
        kinds=rules.listed("full_attn_idxs", FULL, CONV, absent=FULL),
        build=hybrid(_LFM2),
    ),
    "lfm2_moe": replace(
        _FREE, names=names.LFM2, norm="head", kinds=rules.needed, build=hybrid(_LFM2)
    ),
    "lfm3": replace(
        _BIASED,
        names=names.LFM3,
        norm="head",
        kinds=rules.lfm3_kinds,
        build=hybrid(
            {
                FULL: gated.per_head_on_demand,
                SLIDING: gated.per_head_on_demand,
                CONV: linear.short_convolution,
            }
        ),
    ),
    "zaya": replace(
        _BIASED,
        names=names.ZAYA,
        kinds=rules.all_of(HYBRID),
        build=hybrid({HYBRID: unusual.zaya, HYBRID_SLIDING: unusual.zaya}),
    ),
    "inkling_text": replace(
        _FREE,
        names=names.INKLING,
        key_value_keys=_INKLING_KEYS,
        tied=tying.never,
        kinds=rules.inkling_kinds,
        build=hybrid(_INKLING),
    ),
    "inkling2_text": replace(
        _FREE,
        tied=tying.never,
        names=names.INKLING2,
        key_value_keys=_INKLING_KEYS,
        kinds=rules.every_nth(6, HYBRID, HYBRID_SLIDING),
        build=hybrid(_INKLING2),
    ),
    "inkling2_loop_text": replace(
        _FREE,
        tied=tying.never,
        names=names.INKLING2_LOOP,
        key_value_keys=_INKLING_KEYS,
        kinds=rules.every_nth(6, HYBRID, HYBRID_SLIDING),
        build=unusual.looped(
            hybrid(_INKLING2), "loop_layer_index_start", "loop_layer_index_end", "loop_num_passes"
        ),
    ),
    # An indexer makes attention sparse
    "deepseek_v32": replace(_DSA, build=indexed.deepseek()),
    "glm_moe_dsa": replace(_DSA, build=indexed.deepseek(owners=indexed.indexer_owners)),
    "axk2": replace(_DSA, build=indexed.deepseek(gated_query)),
    "hy_v4": replace(_DSA, build=indexed.deepseek(gate_and_sinks, every_fourth_owns)),
    "hy_v4_vl_text": replace(_DSA, build=indexed.deepseek(gate_and_sinks, every_fourth_owns)),
    "mistral_large4_text": replace(_DSA, names=names.MISTRAL_LARGE4, build=indexed.mistral_large4),
    "glm5_next_text": replace(_DSA, kinds=rules.at(3, 4, INDEXED, LINEAR), build=indexed.glm5_next),
    "dots3_note_text": replace(_DSA, names=DOTS3_TENSORS, kinds=dots3_kinds, build=indexed.dots3),
    "minimax_m3_vl_text": replace(
        _FREE,
        norm="head",
        kinds=rules.m3_kinds,
        build=hybrid(
            {FULL: plain, INDEXED: indexed.with_key_value("index_n_heads", "index_head_dim")}
        ),
    ),
    "deepseek_v4": replace(
        _FREE,
        names=DEEPSEEK_V4_TENSORS,
        kinds=deepseek_v4_kinds,
        build=hybrid(dict.fromkeys((SLIDING, CSA, HCA), unusual.deepseek_v4)),
    ),
    # Formats of their own
    "rwkv": replace(_FREE, names=names.NO_ATTENTION, build=own.rwkv),
    "xlstm": replace(_FREE, tied=tying.never, names=names.NO_ATTENTION, build=own.xlstm),
    "xlnet": Family(
        names=names.XLNET,
        fixed_head_dim=True,
        key_value_heads=shape.as_query_heads,
        build=own.xlnet,
    ),
    "reformer": Family(tied=tying.never, names=names.REFORMER, build=own.reformer),
    "cpmant": Family(
        tied=tying.never,
        names=names.CPMANT,
        key_value_heads=shape.as_query_heads,
        build=own.cpmant,
    ),
    "hrm_text": replace(
        _BIASED, names=names.HRM, key_value_heads=shape.as_query_heads, build=own.hrm_text
    ),
    # All of the prompt stays, and a window of what was generated: a context counts as prompt.
    "unlimited_ocr_text": replace(
        _BIASED,
        fixed_head_dim=True,
        kinds=rules.all_of(FULL),
        build=hybrid({FULL: plain}, written=False),
    ),
    "dory": replace(_BIASED, names=names.DORY, kinds=kinds.every(4), build=own.dory),
}

# Multimodal types whose nested language model is one of these.
WRAPPERS = (
    *("dots3_note", "glm5_next", "hy_v4_vl", "inkling2", "inkling2_loop", "inkling_mm_model"),
    *("jev", "lfm2_vl", "lfm3_vl", "minicpm_ocr", "minicpmv4_6", "minicpmv4_7"),
    *("minimax_m3_vl", "mistral_large4", "nemo_speechlm", "nemotron_h_omni", "qwen3_5"),
    *("qwen3_5_moe", "qwen4_exp", "unlimited_ocr"),
)
