"""Hybrids in one layer: shared blocks, convolutions inside attention, and a compressed cache."""

from dataclasses import replace

from headcount.model.mixers import Attention, Mixer, State
from headcount.model.spec import Layer

from ..attention.layers import attention, check_grouping
from ..attention.shape import AttentionShape, standard_key_value_heads
from ..config_view import ConfigView
from ..decoders.deepseek import (
    _RATES as _RATES,
)
from ..decoders.deepseek import (
    _rate as _rate,
)
from ..decoders.deepseek import (
    deepseek_v4 as deepseek_v4,
)
from ..states.hybrid import HYBRID, HYBRID_SLIDING, LINEAR, Builder, Maker, hybrid_kinds
from ..states.mamba import FLOAT32


def beside(one: Maker, other: Maker) -> Maker:
    """Both mixers in one layer (Falcon-H1)."""

    def make(shape: AttentionShape, view: ConfigView, kind: str) -> tuple[Mixer, ...]:
        return (*one(shape, view, kind), *other(shape, view, kind))

    return make


def zamba(mamba: Maker) -> Builder:
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


def zaya(shape: AttentionShape, view: ConfigView, kind: str) -> tuple[Mixer, ...]:
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


def inkling(*, second: bool) -> Maker:
    """Inkling and, with `second`, Inkling 2: a relative position bias, and float32 convolutions
    over k, v and the outputs of attention and MLP, whose states are kept."""

    def make(shape: AttentionShape, view: ConfigView, kind: str) -> tuple[Mixer, ...]:
        sliding = kind == HYBRID_SLIDING
        mixer = _inkling_attention(view, sliding)
        hidden, kernel = mixer.hidden_size, view.integer("conv_kernel_size")
        width = mixer.num_key_value_heads * mixer.head_dim
        count = (_inkling2_other if second else _inkling_other)(view, mixer, sliding)
        kept = State(fixed=kernel * 2 * (width + hidden), bits=FLOAT32)
        norms = 0 if second else 2 * mixer.head_dim
        other = count + 2 * width * kernel
        return (replace(mixer, norm_parameters=norms, other_parameters=other, states=(kept,)),)

    return make


def _inkling_attention(view: ConfigView, sliding: bool) -> Attention:
    prefix = "swa_" if sliding else ""
    heads = view.integer(f"{prefix}num_attention_heads")
    kv = view.integer(f"{prefix}num_key_value_heads")
    d = view.integer(f"{prefix}head_dim")
    check_grouping(view, heads, kv)
    return Attention(
        hidden_size=view.integer("hidden_size"),
        num_attention_heads=heads,
        num_key_value_heads=kv,
        head_dim=d,
        v_head_dim=d,
        window=view.integer("sliding_window") if sliding else None,
    )


def _inkling_other(view: ConfigView, mixer: Attention, sliding: bool) -> int:
    """r_proj [H*d_rel, h] and the bias by distance [d_rel, extent]."""
    extent = view.integer("sliding_window") if sliding else view.integer("rel_extent")
    relative = view.integer("d_rel")
    return relative * (mixer.hidden_size * mixer.num_attention_heads + extent)


def _inkling2_other(view: ConfigView, mixer: Attention, sliding: bool) -> int:
    """The same with scales per head of q and of the bias, a gate of the output, a sink per head
    from the input, and in full layers convolution weights that the input makes."""
    hidden, heads, relative = mixer.hidden_size, mixer.num_attention_heads, view.integer("d_rel")
    width = heads * mixer.head_dim
    kernels = 0 if sliding else 2 * hidden * mixer.num_key_value_heads
    return (
        _inkling_other(view, mixer, sliding)
        + width
        + heads * relative
        + hidden * (width + heads)
        + kernels * view.integer("conv_kernel_size")
    )


def looped(build: Builder, start: str, end: str, passes: str) -> Builder:
    """Layers from `start` to `end` run `passes` times with the same weights; the further passes'
    caches are appended after those of all layers."""

    def again(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
        layers = build(shape, view)
        first, last = view.integer(start, minimum=0), view.integer(end)
        return repeat(layers, first, last, view.integer(passes))

    return again


def repeat(layers: tuple[Layer, ...], first: int, last: int, passes: int) -> tuple[Layer, ...]:
    """`layers`, and copies of first:last without parameters, one for each further pass."""
    copies = [layer for _ in range(passes - 1) for layer in layers[first:last]]
    return layers + tuple(
        replace(
            layer,
            index=len(layers) + i,
            mixers=tuple(
                replace(mixer, owns_parameters=False)
                for mixer in layer.mixers
                if isinstance(mixer, Attention)
            ),
        )
        for i, layer in enumerate(copies)
    )
