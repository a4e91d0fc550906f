"""Attention that a small indexer makes sparse: it keeps a key per token beside the main cache.

DeepSeek sparse attention (DeepSeek-V3.2) and its kin. nI, dI are the indexer's heads and their
width; all its heads share one key.
"""

from collections.abc import Callable
from dataclasses import replace

from headcount.model.errors import InvalidConfigError
from headcount.model.mixers import Attention, LatentAttention, Mixer, State
from headcount.model.spec import Layer

from ..attention.layers import attention, kind_window, latent_attention, layer_count
from ..attention.shape import AttentionShape, Builder
from ..config_view import ConfigView
from .hybrid import INDEXED, MixerMaker, hybrid_kinds

Shaped = Callable[[ConfigView, LatentAttention], LatentAttention]
OwnersRule = Callable[[ConfigView, int], tuple[bool, ...]]


def unchanged(view: ConfigView, mixer: LatentAttention) -> LatentAttention:
    return mixer


def every_layer_owns(view: ConfigView, count: int) -> tuple[bool, ...]:
    return (True,) * count


def indexer_owners(view: ConfigView, count: int) -> tuple[bool, ...]:
    """Which layers have an indexer of their own; the others use the choice of one before them.

    `indexer_types` (full or shared), else the letters of `index_topk_pattern` (F or S), else one in
    `index_topk_freq` layers after `index_skip_topk_offset`.
    """
    given = view.strings("indexer_types")
    if given is None:
        letters = view.get("index_topk_pattern")
        given = tuple(letters) if isinstance(letters, str) else view.strings("index_topk_pattern")
    if given is not None:
        return owners_by_words(view, given, count)
    step = view.optional("index_topk_freq", minimum=0) or 1
    offset = view.optional("index_skip_topk_offset", minimum=0)
    skip = 2 if offset is None else offset
    return tuple(max(i - skip + 1, 0) % step == 0 for i in range(count))


def owners_by_words(view: ConfigView, given: tuple[str, ...], count: int) -> tuple[bool, ...]:
    words = {"full": True, "F": True, "shared": False, "S": False}
    if len(given) < count or not set(given) <= set(words):
        raise InvalidConfigError(
            f"{view.where}: indexer_types must say full or shared for each of {count} layers"
        )
    return tuple(words[word] for word in given[:count])


def indexed_latent_layers(
    changed: Shaped = unchanged, owners: OwnersRule = every_layer_owns
) -> Builder:
    """Latent attention with an indexer that reads the query's latent, in every layer."""

    def build(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
        hybrid_kinds(shape.kinds, view, {INDEXED: None})
        bare = changed(view, latent_attention(view))
        with_indexer = add_indexer(view, bare)
        return tuple(
            Layer(index=i, mixers=(with_indexer if owns else bare,))
            for i, owns in enumerate(owners(view, layer_count(view)))
        )

    return build


def add_indexer(
    view: ConfigView, mixer: LatentAttention, *, bits: int | None = None
) -> LatentAttention:
    """`mixer` with an indexer: queries from the query's latent (or, without one, from the input),
    a normed key, and a weight per head."""
    heads, d = view.integer("index_n_heads"), view.integer("index_head_dim")
    read = mixer.q_lora_rank or mixer.hidden_size
    own = heads * d * read + mixer.hidden_size * (d + heads) + 2 * d
    return replace(
        mixer,
        other_parameters=mixer.other_parameters + own,
        states=(*mixer.states, State(per_token=d, bits=bits)),
    )


def indexed_attention(heads: str, width: str) -> MixerMaker:
    """Attention with K/V heads and an indexer of one key head: MiniMax-M3 and Qwen4."""

    def make(shape: AttentionShape, view: ConfigView, kind: str) -> tuple[Mixer, ...]:
        mixer: Attention = attention(shape, view, window=kind_window(shape, view, kind))
        legacy = view.child("sparse_attention_config")  # MiniMax-M3's first files
        count = legacy.optional("sparse_num_index_heads") or view.integer(heads)
        d = legacy.optional("sparse_index_dim") or view.integer(width)
        own = mixer.hidden_size * (count + 1) * d + 2 * d
        return (
            replace(
                mixer, other_parameters=mixer.other_parameters + own, states=(State(per_token=d),)
            ),
        )

    return make
