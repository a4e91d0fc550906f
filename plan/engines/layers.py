"""The cache of each layer on one rank, as an engine with pages of K/V memory sees it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from headcount.model.dtypes import bytes_of
from headcount.model.mixers import (
    Attention,
    CompressedAttention,
    CrossAttention,
    LatentAttention,
    Mixer,
    Recurrent,
)
from headcount.model.mixers.state import State
from headcount.model.spec import Layer, ModelSpec

from ..parallel import rank_mixer
from ..request import PlanRequest
from .kv_formats import KvFormat

Kind = Literal["full", "sliding", "chunked", "latent", "cross", "state"]


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerCache:
    """One layer's cache: `token_bytes` for each token that it keeps, or `state_bytes` in all.

    `window` is the number of tokens that a query of a sliding or chunked layer can see;
    `block_size` are the tokens of its least block, None: those of all.
    """

    kind: Kind
    token_bytes: int = 0
    state_bytes: int = 0
    window: int | None = None
    block_size: int | None = None


Deal = Callable[[int, int], tuple[int, ...]]  # layers, stages -> the stage of each layer

# A sparse-attention indexer keeps its key in fp8 and a float32 scale per 128 elements of it.
_INDEXER_BLOCK, _SCALE_BYTES = 128, 4
_PLAIN_INDEX_BYTES = 2


class StagedCaches(NamedTuple):
    """The caches of one rank of each pipeline stage; `stages[i]` is where `caches[i]` is."""

    caches: tuple[LayerCache, ...]
    stages: tuple[int, ...]

    def of_stage(self, stage: int) -> tuple[LayerCache, ...]:
        """None where the stage's layers read others' caches."""
        return tuple(n for n, at in zip(self.caches, self.stages, strict=True) if at == stage)


def stage_of_layers(layers: int, pp: int) -> tuple[int, ...]:
    """The pipeline stage of each layer, as vLLM deals them: what is left over goes to the stages
    before the last one, from the back, since the last has the output head (get_pp_indices)."""
    each, left = divmod(layers, pp)
    counts = [each + (pp - left - 1 <= stage < pp - 1) for stage in range(pp)]
    return tuple(stage for stage, count in enumerate(counts) for _ in range(count))


def stages_of(request: PlanRequest, layers: int, deal: Deal = stage_of_layers) -> tuple[int, ...]:
    """The pipeline stage of each layer: by the user's partition, else as `deal` has it."""
    counts = request.pp_layer_partition
    if counts is None:
        return deal(layers, request.pp)
    return tuple(stage for stage, count in enumerate(counts) for _ in range(count))


def staged_caches(
    spec: ModelSpec,
    *,
    tp: int,
    kv: KvFormat,
    stages: Sequence[int] | None = None,
    chunk: int | None = None,
) -> StagedCaches:
    """What each layer keeps on one of `tp` ranks of its stage, of which `stages` has one a layer;
    None: all are on one.

    An indexer's keys count as a layer of their own, and so does recurrent state beside attention.
    `chunk` is the config's attention_chunk_size: windows of that size begin at its multiples.
    """
    if picks_latents(spec):
        kv = replace(kv, latent_bytes=kv.sparse_latent_bytes)
    found = [
        (cache, at)
        for layer, at in zip(spec.layers, stages or [0] * len(spec.layers), strict=True)
        for cache in caches_of_layer(layer, spec, tp=tp, kv=kv, chunk=chunk)
    ]
    return StagedCaches(
        caches=tuple(cache for cache, _ in found), stages=tuple(at for _, at in found)
    )


def compresses(spec: ModelSpec) -> bool:
    """Whether layers keep compressed tokens beside a window (DeepSeek-V4)."""
    return any(isinstance(m, CompressedAttention) for n in spec.layers for m in n.mixers)


def picks_latents(spec: ModelSpec) -> bool:
    """Whether latents are read by the tokens that an indexer picks; layers without an indexer take
    those of another's."""
    return any(
        isinstance(mixer, LatentAttention) and any(state.per_token for state in mixer.states)
        for layer in spec.layers
        for mixer in layer.mixers
    )


def caches_of_layer(
    layer: Layer, spec: ModelSpec, *, tp: int, kv: KvFormat, chunk: int | None = None
) -> Iterator[LayerCache]:
    """Those of one layer of the model, as in `staged_caches`."""
    for mixer in layer.mixers:
        yield from _caches(rank_mixer(mixer, tp), _of_layer(kv, layer.index, spec), chunk)


def readers_apart(spec: ModelSpec, stages: Sequence[int]) -> int:
    """How many layers read the cache of a layer that is on another of the stages."""
    homes = {(n.stack, n.index): own for n, own in zip(spec.layers, stages, strict=True)}
    return sum(
        layer.shares_cache_with is not None
        and homes.get((layer.stack, layer.shares_cache_with), own) != own
        for layer, own in zip(spec.layers, stages, strict=True)
    )


def _caches(mixer: Mixer, kv: KvFormat, chunk: int | None) -> Iterator[LayerCache]:
    elements = mixer.key_value_elements(1, 1, "serving")
    indexer = sum(state.per_token for state in mixer.states)
    if isinstance(mixer, LatentAttention) and elements:
        token = kv.latent_bytes or _bytes(elements, kv)
        kind: Kind = "latent" if mixer.window is None else "sliding"
        yield LayerCache(kind=kind, token_bytes=token, window=mixer.window)
    elif elements:
        yield _keys_and_values(mixer, elements, kv, chunk)
    if indexer:
        yield _indexers_keys(mixer, indexer)
    if kept := _state_bytes(mixer, kv):
        yield LayerCache(kind="state", state_bytes=kept)


def _indexers_keys(mixer: Mixer, elements: int) -> LayerCache:
    """In fp8 with scales beside latents, else in bfloat16 (MiniMaxM3IndexerCache of
    vllm/models/minimax_m3/common/indexer.py)."""
    if not isinstance(mixer, LatentAttention):
        return LayerCache(kind="full", token_bytes=_PLAIN_INDEX_BYTES * elements)
    scales = -(-elements // _INDEXER_BLOCK) * _SCALE_BYTES
    return LayerCache(kind="latent", token_bytes=elements + scales)


def _of_layer(kv: KvFormat, index: int, spec: ModelSpec) -> KvFormat:
    """The first and last layers may be left as they are, but in hybrid models."""
    ends = min(kv.plain_ends, len(spec.layers) // 2)
    if ends <= index < len(spec.layers) - ends or _has_state(spec):
        return kv
    return replace(kv, bits=kv.plain_bits, packed=None, scale_every=None)


def _has_state(spec: ModelSpec) -> bool:
    return any(isinstance(mixer, Recurrent) for layer in spec.layers for mixer in layer.mixers)


def _packed(mixer: Attention, bits: tuple[int, int]) -> int:
    """A token of a head's keys and values in one slot."""
    keys, values = bits
    size = -(-mixer.head_dim * keys // 8) + 2 * (keys < 8) + -(-mixer.v_head_dim * values // 8) + 4
    return size + size % 2


def _bytes(elements: int, kv: KvFormat) -> int:
    scales = -(-elements // kv.scale_every) if kv.scale_every else 0
    return bytes_of(elements, kv.bits) + scales


def _keys_and_values(mixer: Mixer, elements: int, kv: KvFormat, chunk: int | None) -> LayerCache:
    heads = mixer.num_key_value_heads or 0
    if kv.packed is not None and isinstance(mixer, Attention):
        token = heads * _packed(mixer, kv.packed)
    else:
        token = _bytes(elements, kv) + heads * kv.head_bytes
    if isinstance(mixer, CrossAttention):
        return LayerCache(kind="cross", token_bytes=token)
    if mixer.window is None:
        return LayerCache(kind="full", token_bytes=token)
    kind: Kind = "chunked" if mixer.window == chunk else "sliding"
    return LayerCache(kind=kind, token_bytes=token, window=mixer.window)


def _state_bytes(mixer: Mixer, kv: KvFormat) -> int:
    """Recurrent and convolution state: what has bits of its own in transformers is recurrent."""
    total = 0
    for state in mixer.states:
        kept = state.fixed_elements("serving") + _speculated_elements(mixer, state, kv.speculated)
        is_recurrent = state.bits is not None or (
            isinstance(mixer, Recurrent) and not state.columns
        )
        total += bytes_of(kept, kv.state_bits if is_recurrent else kv.conv_bits)
    return total


# mamba2_state_shape and gated_delta_net_state_shape of
# vllm/model_executor/layers/mamba/mamba_utils.py; other forms take no further columns.
_SPECULATING = ("Mamba-2", "gated delta net")


def _speculated_elements(mixer: Mixer, state: State, speculated: int) -> int:
    """Those of a convolution's columns for tokens that are drafted and may be taken back."""
    if not state.columns or getattr(mixer, "form", None) not in _SPECULATING:
        return 0
    return state.fixed // state.columns * speculated
