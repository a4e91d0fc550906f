"""The cache of each layer on one rank, as an engine with pages of K/V memory sees it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ...dtypes import bytes_of
from ...mixers import CrossAttention, LatentAttention, Mixer, Recurrent
from ...spec import ModelSpec
from ..parallel import rank_mixer

Kind = Literal["full", "sliding", "chunked", "latent", "cross", "state"]


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerCache:
    """One layer's cache: `token_bytes` for each token that it keeps, or `state_bytes` in all.

    `window` is the number of tokens that a query of a sliding or chunked layer can see.
    """

    kind: Kind
    token_bytes: int = 0
    state_bytes: int = 0
    window: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class KvFormat:
    """How an engine stores keys and values: `bits` an element; `head_bytes` beside each K/V head's
    pair per token, for scales of its own; `latent_bytes` a token of MLA, where its kernel has a
    layout of its own. `state_bits` are those of recurrent state, `conv_bits` of convolutions'."""

    bits: int
    head_bytes: int = 0
    latent_bytes: int | None = None
    state_bits: int = 16
    conv_bits: int = 16


# A sparse-attention indexer keeps its key in fp8 and a float32 scale per 128 elements of it.
_INDEXER_BLOCK, _SCALE_BYTES = 128, 4


def layer_caches(spec: ModelSpec, *, tp: int, kv: KvFormat) -> tuple[LayerCache, ...]:
    """What each layer of one of `tp` ranks keeps; an indexer's keys count as a layer of their own,
    and so does recurrent state beside attention."""
    return tuple(
        cache
        for layer in spec.layers
        for mixer in layer.mixers
        for cache in _caches(rank_mixer(mixer, tp), kv)
    )


def _caches(mixer: Mixer, kv: KvFormat) -> Iterator[LayerCache]:
    elements = mixer.key_value_elements(1, 1, "serving")
    if isinstance(mixer, LatentAttention) and elements:
        own = kv.latent_bytes
        token = bytes_of(elements, kv.bits) if own is None else own
        yield LayerCache(kind="latent", token_bytes=token, window=mixer.window)
    elif elements:
        yield _keys_and_values(mixer, elements, kv)
    if indexer := sum(state.per_token for state in mixer.states):
        scales = -(-indexer // _INDEXER_BLOCK) * _SCALE_BYTES
        yield LayerCache(kind="latent", token_bytes=indexer + scales)
    if kept := _state_bytes(mixer, kv):
        yield LayerCache(kind="state", state_bytes=kept)


def _keys_and_values(mixer: Mixer, elements: int, kv: KvFormat) -> LayerCache:
    heads = mixer.num_key_value_heads or 0
    token = bytes_of(elements, kv.bits) + heads * kv.head_bytes
    if isinstance(mixer, CrossAttention):
        return LayerCache(kind="cross", token_bytes=token)
    if mixer.window is None:
        return LayerCache(kind="full", token_bytes=token)
    return LayerCache(kind="sliding", token_bytes=token, window=mixer.window)


def _state_bytes(mixer: Mixer, kv: KvFormat) -> int:
    """Recurrent and convolution state: what has bits of its own in transformers is recurrent."""
    total = 0
    for state in mixer.states:
        kept = state.fixed_elements("serving")
        is_recurrent = state.bits is not None or (
            isinstance(mixer, Recurrent) and not state.columns
        )
        total += bytes_of(kept, kv.state_bits if is_recurrent else kv.conv_bits)
    return total
