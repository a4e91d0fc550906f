"""Qwen's hybrids: three gated delta nets to one layer of gated full attention."""

from dataclasses import replace

from headcount.model.mixers import Attention, Mixer, Recurrent, State
from headcount.model.spec import Layer

from ..architecture import MULTIMODAL, Architecture, ConfigKeys, Conversion
from ..attention.layer_kinds import FULL
from ..attention.shape import AttentionShape, Builder
from ..attention.shared import LLAMA_ATTENTION
from ..body.body import Body
from ..body.feed_forward import sparse_steps
from ..body.qwen_towers import QWEN3_VL_TOWER, qwen2_5_vl_projector
from ..body.shared import DECODER, ONE_SHARED
from ..body.towers import fixed_tower
from ..config_view import ConfigView
from ..gguf.form import Gguf, Indexer, Recurrence
from ..modules.names import ONE_SHARED_EXPERT, QWEN3_NEXT_PREDICTION, QWEN_PREDICTION
from ..states.hybrid import INDEXED, LAYER_TYPES, LINEAR, hybrid, query_gated_attention
from ..states.indexed import indexed_attention
from ..states.kinds import every_nth
from ..states.linear import gated_delta_net
from ..tensors.names import HYBRID_NAMES, under


def qwen3_5_projector(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """One merger, whose norm has a bias."""
    return qwen2_5_vl_projector(view, tower, text) + tower.integer("hidden_size")


def indexed_query_gated_attention(
    shape: AttentionShape, view: ConfigView, kind: str
) -> tuple[Mixer, ...]:
    """A gate for every element of the output, which q_proj computes, and an indexer (Qwen4)."""
    (mixer,) = indexed_attention("indexer_n_heads", "indexer_head_dim")(shape, view, kind)
    assert isinstance(mixer, Attention)
    return (replace(mixer, query_gate=True),)


def with_ngrams(build: Builder) -> Builder:
    """Qwen4: layers in `ple_layer_ids`, from 1 on, add embeddings of n-grams. They keep what their
    dilated convolution needs and the last ids, which are int64."""

    def read(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
        layers, chosen = build(shape, view), view.integers("ple_layer_ids") or ()
        if not chosen:
            return layers
        ngram = view.integer("ngram_size")
        columns = (view.integer("ple_conv_kernel_size", minimum=1) - 1) * ngram
        kept = (
            State(fixed=view.integer("hc_count") * view.integer("hidden_size") * columns),
            State(fixed=ngram - 1, bits=64),
        )
        return tuple(
            replace(layer, mixers=(_keeping(layer.mixers[0], kept), *layer.mixers[1:]))
            if layer.index + 1 in chosen
            else layer
            for layer in layers
        )

    return read


def _keeping(mixer: Mixer, kept: tuple[State, ...]) -> Mixer:
    assert isinstance(mixer, (Recurrent, Attention))
    return replace(mixer, states=(*mixer.states, *kept))


# Qwen 4: an indexer, and connections between layers that are called after the attention.
QWEN4_NAMES = HYBRID_NAMES.also(
    under("self_attn.indexer", other="index_qk_proj")
    | {"self_attn.indexer.q_layernorm": "other", "self_attn.indexer.k_layernorm": "other"}
    | {
        f"attn_hyper_connection.{name}": ""
        for name in (
            *("block_inject_weight", "hc_norm"),
            *("input_mix_weight_down", "input_mix_weight_up"),
        )
    }
)

QWEN3_5_TOWER = replace(QWEN3_VL_TOWER, model_type="qwen3_5_vision")
QWEN3_5_MOE_TOWER = replace(QWEN3_VL_TOWER, model_type="qwen3_5_moe_vision")
SHARED_AND_GATE = replace(ONE_SHARED, shared_gate=True)
DELTA_NET = Recurrence(form="gated delta net", layers="interval", period=4)

QWEN3_NEXT = Architecture(
    types=("qwen3_next",),
    config=ConfigKeys(aliases=LAYER_TYPES),
    attention=replace(
        LLAMA_ATTENTION,
        build=hybrid({FULL: query_gated_attention, LINEAR: gated_delta_net}),
        kinds=every_nth(4, FULL, LINEAR, "full_attention_interval"),
        norm="head",
    ),
    body=Body(experts=replace(SHARED_AND_GATE, layers=sparse_steps)),
    feed_forward=ONE_SHARED_EXPERT,
    prediction=QWEN3_NEXT_PREDICTION,
    tensors=HYBRID_NAMES,
    gguf=(Gguf(architecture="qwen3next", recurrence=DELTA_NET, query_gate=True),),
)

ARCHITECTURES = (
    QWEN3_NEXT,
    QWEN3_NEXT.relative(
        "qwen3_5_text",
        body=DECODER,
        prediction=QWEN_PREDICTION,
        gguf=(Gguf(architecture="qwen35", recurrence=DELTA_NET, query_gate=True),),
    ),
    QWEN3_NEXT.relative(
        "qwen3_5_moe_text",
        body={"experts": SHARED_AND_GATE},
        prediction=QWEN_PREDICTION,
        gguf=(Gguf(architecture="qwen35moe", recurrence=DELTA_NET, query_gate=True),),
    ),
    QWEN3_NEXT.relative(
        "qwen4_exp_text",
        attention={
            "build": with_ngrams(
                hybrid(
                    {
                        INDEXED: indexed_query_gated_attention,
                        FULL: indexed_query_gated_attention,
                        LINEAR: gated_delta_net,
                    }
                )
            ),
            "kinds": every_nth(4, INDEXED, LINEAR, "full_attention_interval"),
        },
        body=None,
        tensors=QWEN4_NAMES,
        conversion=Conversion(variant={"indexer_n_heads": 2, "indexer_head_dim": 128}),
        gguf=(
            Gguf(architecture="qwen4exp", recurrence=DELTA_NET, query_gate=True, indexer=Indexer()),
        ),
    ),
    MULTIMODAL.relative("qwen4_exp"),
    MULTIMODAL.relative("qwen3_5", body=fixed_tower(QWEN3_5_TOWER, projector=qwen3_5_projector)),
    MULTIMODAL.relative(
        "qwen3_5_moe", body=fixed_tower(QWEN3_5_MOE_TOWER, projector=qwen3_5_projector)
    ),
)
