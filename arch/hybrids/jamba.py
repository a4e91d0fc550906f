"""Jamba, Zamba and ZAYA: attention among Mamba layers or convolutions."""

from dataclasses import replace

from headcount.model.mixers import Attention, Mixer, State
from headcount.model.spec import Layer

from ..architecture import JOINED, Architecture, ConfigKeys, Conversion
from ..attention.layer_kinds import FULL, KindFunction
from ..attention.layers import attention, check_grouping
from ..attention.shape import AttentionShape, Builder, standard_key_value_heads
from ..attention.shared import LLAMA_ATTENTION
from ..body.body import Body, Layers
from ..body.feed_forward import Experts, LayerRule, matrices
from ..body.shared import NO_MLP
from ..config_view import ConfigView
from ..gguf.form import Gguf, Recurrence, Windows
from ..states.hybrid import (
    HYBRID,
    HYBRID_SLIDING,
    LAYER_TYPES,
    LINEAR,
    MixerMaker,
    hybrid,
    hybrid_kinds,
    plain_attention,
)
from ..states.kinds import all_of, every_nth_from
from ..states.mamba import mamba1_of_hybrid, mamba2
from ..tensors.names import HYBRID_NAMES, TensorNames, separate, under


def zamba_blocks(view: ConfigView, layers: Layers) -> int:
    """The MLP and the norms of each shared block, the first over a width of 2h, and a square
    matrix behind every use. Zamba2 adds low-rank adapters to the MLP for each use of a block."""
    hidden = view.integer("hidden_size")
    width = view.optional("intermediate_size") or 4 * hidden
    hybrid = [layer for layer in layers if len(layer.mixers) == 2]
    owned = [i for i, layer in enumerate(hybrid) if layer.mixers[0].parameters().total]
    block = matrices(hidden, width, gated=True, bias=view.flag("add_bias_linear")) + 3 * hidden
    rank = view.optional("adapter_rank", minimum=0) or 0
    blocks = view.optional("num_mem_blocks") or 1
    uses = sum(len(range(i % blocks, len(hybrid), blocks)) for i in owned)
    adapters = uses * rank * (hidden + 2 * width)
    return len(owned) * block + adapters + len(hybrid) * hidden * hidden


def zaya_routers(view: ConfigView, layers: Layers) -> int:
    """A router of three layers that also sees the last layer's router, and learned scales and
    biases of the residual stream."""
    hidden, inner = view.integer("hidden_size"), view.integer("router_hidden_size")
    outputs = view.integer("num_experts") + 1
    router = (hidden + 1) * inner + inner + 2 * inner * (inner + 1) + inner * outputs
    count = len(layers)
    return count * (router + 8 * hidden) + (count - 1) * inner + 2 * hidden


def _shared_attention(view: ConfigView, use: int, *, adapters: int) -> Attention:
    hidden, heads = view.integer("hidden_size"), view.integer("num_attention_heads")
    wide = view.optional("attention_hidden_size") or 2 * hidden
    d = view.optional("attention_head_dim") or 2 * hidden // heads
    kv = standard_key_value_heads(view, heads)
    check_grouping(view, heads, kv)
    rank = view.integer("adapter_rank") if view.flag("use_shared_attention_adapter") else 0
    return Attention(
        hidden_size=hidden,
        num_attention_heads=heads,
        num_key_value_heads=kv,
        head_dim=d,
        v_head_dim=d,
        query_size=wide,
        key_value_size=wide,
        other_parameters=adapters * 3 * 2 * wide * rank,
    )


def shared_block_layers(mamba: MixerMaker) -> Builder:
    """Mamba in every layer, and in hybrid ones a transformer block that several layers share.

    Attention reads the layer's input beside the embeddings, 2h wide, and writes h. A block counts
    where it is first used; each use has a cache of its own. Zamba2 has `num_mem_blocks` blocks in
    turn, and may add low-rank adapters of q, k and v to each use, which belong to the block.
    """

    def build(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
        kinds = hybrid_kinds(shape.kinds, view, {LINEAR: None, HYBRID: None})
        uses = [i for i, kind in enumerate(kinds) if kind == HYBRID]
        blocks = view.optional("num_mem_blocks") or 1
        always = mamba(shape, view, LINEAR)
        ties = view.flag("tie_word_embeddings")  # without, transformers shares nothing at all
        layers = []
        for i, kind in enumerate(kinds):
            if kind != HYBRID:
                layers.append(Layer(index=i, mixers=always))
                continue
            use = uses.index(i)
            shared = _shared_attention(
                view, use, adapters=len(range(use % blocks, len(uses), blocks))
            )
            shared = replace(shared, owns_parameters=use < blocks or not ties)
            layers.append(Layer(index=i, mixers=(shared, *always)))
        return tuple(layers)

    return build


def convolved_attention(shape: AttentionShape, view: ConfigView, kind: str) -> tuple[Mixer, ...]:
    """Compressed convolutional attention (arXiv 2510.04476): q and k pass two convolutions, one per
    channel and one per head, and half of v comes from the token before."""
    window = view.integer("sliding_window") if kind == HYBRID_SLIDING else None
    mixer = attention(shape, view, window=window)
    d, kv = mixer.head_dim, mixer.num_key_value_heads
    channels = (mixer.num_attention_heads + kv) * d
    first, second = view.integer("cca_time0"), view.integer("cca_time1")
    convolutions = channels * (first + 1) + channels * (d * second + 1)
    return (
        replace(
            mixer,
            other_parameters=convolutions + kv,  # a temperature per K/V head
            states=(State(fixed=channels * (first + second - 2) + kv * d // 2),),
        ),
    )


def periodic_layers(period: str, offset: str) -> LayerRule:
    """Every so many layers, from the one at the offset on (Jamba)."""

    def rule(view: ConfigView, count: int) -> frozenset[int]:
        step, first = view.integer(period), view.integer(offset, minimum=0)
        return frozenset(i for i in range(count) if i % step == first)

    return rule


def jamba_kinds(view: ConfigView, count: int) -> tuple[str, ...]:
    period, offset = view.integer("attn_layer_period"), view.integer("attn_layer_offset", minimum=0)
    return every_nth_from(offset, period, FULL, LINEAR)(view, count)


def zamba_kinds(view: ConfigView, count: int) -> tuple[str, ...]:
    """Two Mamba layers, a hybrid one, and then one in `attn_layer_period` from the offset on."""
    period, offset = view.integer("attn_layer_period"), view.integer("attn_layer_offset", minimum=0)
    rest = tuple(HYBRID if i % period == offset else LINEAR for i in range(max(count - 3, 0)))
    return (LINEAR, LINEAR, HYBRID, *rest)


def fixed_kinds(*kinds: str) -> KindFunction:
    return lambda view, count: kinds


# Shared blocks (Zamba), with adapters of q, k and v in Zamba2.
ZAMBA_NAMES = TensorNames(
    modules=separate("shared_transf.self_attn") | separate("shared_transformer.self_attn"),
    rest="other",
)
ZAYA_NAMES = TensorNames(
    modules=under("self_attn.qkv_proj", q="q_proj", k="k_proj", v_current="v_proj_current")
    | {"self_attn.qkv_proj.v_proj_delayed": "v_delayed", "self_attn.o_proj": "o"}
    | {"self_attn.qk_norm.temp": "other"},
    rest="other",
)

ZAMBA2_KINDS = (
    LINEAR,
    *(*(LINEAR,) * 5, HYBRID) * 7,
    *(*(LINEAR,) * 4, HYBRID),
    *(*(LINEAR,) * 3, HYBRID),
    *(LINEAR,) * 2,
)

ZAMBA = Architecture(
    types=("zamba",),
    config=ConfigKeys(aliases=LAYER_TYPES),
    attention=AttentionShape(
        build=shared_block_layers(mamba1_of_hybrid(normed=False)), kinds=zamba_kinds
    ),
    body=Body(norms=1, mlp=NO_MLP, more=zamba_blocks),
    tensors=ZAMBA_NAMES,
    rotary="none",
)

ARCHITECTURES = (
    Architecture(
        types=("jamba",),
        config=ConfigKeys(aliases=LAYER_TYPES),
        attention=AttentionShape(
            build=hybrid(
                {FULL: plain_attention, LINEAR: mamba1_of_hybrid(normed=True)}, written=False
            ),
            kinds=jamba_kinds,
        ),
        body=Body(
            experts=Experts(
                width="intermediate_size",
                layers=periodic_layers("expert_layer_period", "expert_layer_offset"),
            )
        ),
        tensors=HYBRID_NAMES,
        rotary="none",
        gguf=(
            Gguf(architecture="jamba", recurrence=Recurrence(form="Mamba", layers="without heads")),
        ),
    ),
    ZAMBA,
    ZAMBA.relative(
        "zamba2",
        config={
            "aliases": {
                "layer_types": ("layers_block_type",),
                "mamba_d_state": ("state_size",),
                "mamba_d_conv": ("conv_dimension",),
                "mamba_expand": ("expansion_factor",),
                "adapter_rank": ("lora_rank",),
            },
            "unused": ("kv_channels",),  # half of attention_head_dim
        },
        attention={
            "build": shared_block_layers(
                mamba2(
                    {
                        "expand": "mamba_expand",
                        "n": "mamba_d_state",
                        "groups": "mamba_ngroups",
                        "kernel": "mamba_d_conv",
                        "heads": "n_mamba_heads",
                        "in_bias": "add_bias_linear",
                        "out_bias": "add_bias_linear",
                    }
                )
            ),
            "kinds": fixed_kinds(*ZAMBA2_KINDS),
        },
        rotary="halves",
    ),
    Architecture(
        types=("zaya",),
        config=ConfigKeys(aliases=LAYER_TYPES),
        attention=replace(
            LLAMA_ATTENTION,
            build=hybrid({HYBRID: convolved_attention, HYBRID_SLIDING: convolved_attention}),
            kinds=all_of(HYBRID),
        ),
        body=Body(experts=Experts(router=False), more=zaya_routers, head_bias="lm_head_bias"),
        tensors=ZAYA_NAMES,
        conversion=Conversion(
            refused="its keys and queries are convolved together, so that no head stands by itself"
        ),
        verification=JOINED,
    ),
    # PLaMo is remote code, which llama.cpp runs.
    Architecture(
        types=(),
        gguf=(
            Gguf(
                architecture="plamo2", recurrence=Recurrence(form="Mamba-2", layers="without heads")
            ),
            Gguf(architecture="plamo3", windows=Windows(period=8)),
        ),
    ),
)
