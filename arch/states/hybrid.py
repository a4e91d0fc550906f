"""Layers of several kinds, and layers of two mixers: which layer is what, and who makes it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from headcount.model.mixers import Mixer
from headcount.model.spec import Layer

from ..attention.layer_kinds import CHUNKED, FULL, SLIDING, KindRule, kinds_by_rule, layer_kinds
from ..attention.layers import attention, kind_window, latent_attention, layer_count
from ..attention.shape import AttentionShape, Builder
from ..config_view import ConfigView

LINEAR, CONV, INDEXED = "linear_attention", "conv", "indexed_attention"
HYBRID, HYBRID_SLIDING = "hybrid", "hybrid_sliding"
# What files that transformers 4 wrote call the kinds of layers.
LAYER_TYPES: dict[str, tuple[str, ...]] = {"layer_types": ("layers_block_type",)}
NO_MIXER = "none"  # a layer that holds a feed-forward alone

MixerMaker = Callable[[AttentionShape, ConfigView, str], tuple[Mixer, ...]]

# What files write for each kind, the names of before transformers 5 among them.
_SPELLINGS = {
    **{FULL: FULL, "attention": FULL, SLIDING: SLIDING, CHUNKED: CHUNKED},
    **{LINEAR: LINEAR, "mamba": LINEAR, CONV: CONV, HYBRID: HYBRID},
    **{HYBRID_SLIDING: HYBRID_SLIDING, "moe": NO_MIXER, "mlp": NO_MIXER, INDEXED: INDEXED},
    **dict.fromkeys(("deepseek_sparse_attention", "qwen_sparse_attention"), INDEXED),
    "minimax_m3_sparse": INDEXED,
    **{word: word for word in ("compressed_sparse_attention", "heavily_compressed_attention")},
}


def hybrid(makers: Mapping[str, MixerMaker], *, written: bool = True) -> Builder:
    """Each layer made by its kind. `written`: the file may list kinds in `layer_types`; a class
    that computes them from other keys ignores such a list."""

    def build(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
        kinds = hybrid_kinds(shape.kinds, view, makers, written=written)
        made = {kind: makers[kind](shape, view, kind) for kind in dict.fromkeys(kinds)}
        return tuple(Layer(index=i, mixers=made[kind]) for i, kind in enumerate(kinds))

    return build


def hybrid_kinds(
    rule: KindRule, view: ConfigView, known: Mapping[str, Any], *, written: bool = True
) -> tuple[str, ...]:
    """One kind per layer, each of them in `known`. Raises InvalidConfigError."""
    count = layer_count(view)
    if not written:
        return kinds_by_rule(view, count, rule)
    spellings = {word: kind for word, kind in _SPELLINGS.items() if kind in known}
    return layer_kinds(view, count, rule, spellings)


def plain_attention(shape: AttentionShape, view: ConfigView, kind: str) -> tuple[Mixer, ...]:
    """Attention as the shape describes it, in the window of its kind."""
    return (attention(shape, view, window=kind_window(shape, view, kind)),)


def query_gated_attention(shape: AttentionShape, view: ConfigView, kind: str) -> tuple[Mixer, ...]:
    """q_proj computes a gate for every element of its output, too (Qwen3-Next)."""
    return (
        replace(attention(shape, view, window=kind_window(shape, view, kind)), query_gate=True),
    )


def plain_latent(shape: AttentionShape, view: ConfigView, kind: str) -> tuple[Mixer, ...]:
    """Latent attention by the keys of DeepSeek-V2."""
    return (latent_attention(view),)


def no_mixer(shape: AttentionShape, view: ConfigView, kind: str) -> tuple[Mixer, ...]:
    """A layer that holds a feed-forward alone."""
    return ()
