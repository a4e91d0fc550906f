"""Qwen's hybrids of linear and full attention."""

from dataclasses import replace

from ..architecture import Architecture, ConfigKeys
from ..attention.layer_kinds import FULL
from ..attention.shape import AttentionShape
from ..body.body import Body
from ..body.feed_forward import sparse_steps
from ..body.qwen_towers import QWEN3_VL_TOWER, qwen2_5_vl_projector
from ..body.shapes import DECODER, ONE_SHARED
from ..body.towers import Part, Wrapper
from ..config_view import ConfigView
from ..gguf.form import Gguf, Indexer, Recurrence
from ..states.gated import by_query, indexed_by_query
from ..states.hybrid import INDEXED, LAYER_TYPES, LINEAR, hybrid
from ..states.kinds import every_nth
from ..states.linear import gated_delta_net, with_ngrams
from ..tensors.names import HYBRID, LLAMA, under


def qwen3_5_projector(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """One merger, whose norm has a bias."""
    return qwen2_5_vl_projector(view, tower, text) + tower.integer("hidden_size")


QWEN3_5_TOWER = replace(QWEN3_VL_TOWER, model_type="qwen3_5_vision")
QWEN3_5_MOE_TOWER = replace(QWEN3_VL_TOWER, model_type="qwen3_5_moe_vision")


# Qwen 4: an indexer, and connections between layers that are called after the attention.
QWEN4_NAMES = replace(
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


SHARED_AND_GATE = replace(ONE_SHARED, shared_gate=True)

DELTA_NET = Recurrence(form="gated delta net", layers="interval", period=4)

QWEN3_NEXT = Architecture(
    types=("qwen3_next",),
    config=ConfigKeys(aliases=LAYER_TYPES),
    attention=AttentionShape(
        build=hybrid({FULL: by_query, LINEAR: gated_delta_net}),
        kinds=every_nth(4, FULL, LINEAR, "full_attention_interval"),
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        norm="head",
    ),
    body=Body(experts=replace(SHARED_AND_GATE, layers=sparse_steps)),
    tensors=HYBRID,
    gguf=(Gguf(architecture="qwen3next", recurrence=DELTA_NET, query_gate=True),),
)
QWEN3_5_TEXT = QWEN3_NEXT.relative(
    "qwen3_5_text",
    body=DECODER,
    gguf=(Gguf(architecture="qwen35", recurrence=DELTA_NET, query_gate=True),),
)
QWEN3_5_MOE_TEXT = QWEN3_NEXT.relative(
    "qwen3_5_moe_text",
    body={"experts": SHARED_AND_GATE},
    gguf=(Gguf(architecture="qwen35moe", recurrence=DELTA_NET, query_gate=True),),
)
QWEN4_EXP_TEXT = QWEN3_NEXT.relative(
    "qwen4_exp_text",
    attention={
        "build": with_ngrams(
            hybrid({INDEXED: indexed_by_query, FULL: indexed_by_query, LINEAR: gated_delta_net})
        ),
        "kinds": every_nth(4, INDEXED, LINEAR, "full_attention_interval"),
    },
    body=None,
    tensors=QWEN4_NAMES,
    conversion={"variant": {"indexer_n_heads": 2, "indexer_head_dim": 128}},
    gguf=(Gguf(architecture="qwen4exp", recurrence=DELTA_NET, query_gate=True, indexer=Indexer()),),
)
QWEN4_EXP = Architecture(types=("qwen4_exp",), config=ConfigKeys(text="text_config"))
QWEN3_5 = QWEN4_EXP.relative(
    "qwen3_5", body=Wrapper(parts=(Part(towers=(QWEN3_5_TOWER,), projector=qwen3_5_projector),))
)
QWEN3_5_MOE = QWEN3_5.relative(
    "qwen3_5_moe", body={"parts": (Part(towers=(QWEN3_5_MOE_TOWER,), projector=qwen3_5_projector),)}
)

ARCHITECTURES = (
    *(QWEN3_NEXT, QWEN3_5_TEXT, QWEN3_5_MOE_TEXT, QWEN4_EXP_TEXT),
    *(QWEN4_EXP, QWEN3_5, QWEN3_5_MOE),
)
