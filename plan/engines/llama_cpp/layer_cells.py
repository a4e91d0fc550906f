"""What each layer keeps in llama.cpp: elements of a cell, and state of a sequence.

src/llama-kv-cache.cpp and its kin, src/llama-memory-recurrent.cpp, by create_memory of
src/llama-model.cpp.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from headcount.model.dtypes import bytes_of
from headcount.model.mixers import (
    Attention,
    CompressedAttention,
    CrossAttention,
    LatentAttention,
    Mixer,
    Recurrent,
)
from headcount.model.spec import Layer, ModelSpec

from ...parallel import rank_mixer
from .runs import runs_of

_STATE_BITS = 32
_WITH_A_CACHE = "t5encoder"  # create_memory makes one for it, which its encoder never writes


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerCells:
    """A cell has so many elements of keys and of values, none where values are read from the keys.
    One cell stands for `rate` tokens, and with `own` each sequence has a stream of its own,
    whatever the server's slots share. `state` are bytes of a sequence beside its cells; `layer` is
    the number of the layer; `beside`: cells beside its own, as an indexer has."""

    layer: int
    keys: int = 0
    values: int = 0
    window: int | None = None
    rate: int = 1
    own: bool = False
    state: int = 0
    beside: bool = False

    @property
    def kept(self) -> tuple[object, ...]:
        """All but which layer it is."""
        return (self.keys, self.values, self.window, self.rate, self.own, self.state)


def layer_cells(
    spec: ModelSpec, *, tp: int = 1, padded_values: bool = False
) -> tuple[LayerCells, ...]:
    """Of one of `tp` devices. `padded_values`: without flash attention values are kept transposed,
    and where their widths differ every layer has room for the widest (TAG_V_CACHE_VARIABLE)."""
    if spec.model_type == _WITH_A_CACHE:
        spec = replace(spec, layers=tuple(_as_cached(layer) for layer in spec.layers))
    found = tuple(
        cells
        for layer in spec.layers
        for mixer in layer.mixers
        for cells in _of_mixer(rank_mixer(mixer, tp), layer.index)
    )
    runs = runs_of(spec)
    own = {cells.layer: cells for cells in found if not cells.beside}
    if len(runs) > len(set(runs)):
        found = tuple(replace(own[b], layer=run) for run, b in enumerate(runs) if b in own)
    if not padded_values:
        return found
    widest = max((cells.values for cells in found if not cells.beside), default=0)
    return tuple(replace(c, values=widest) if c.values and not c.beside else c for c in found)


def _as_cached(layer: Layer) -> Layer:
    attention = (mixer for mixer in layer.mixers if isinstance(mixer, Attention))
    return replace(layer, mixers=tuple(replace(mixer, cached=True) for mixer in attention))


def _of_mixer(mixer: Mixer, layer: int) -> Iterator[LayerCells]:
    if isinstance(mixer, CompressedAttention):
        yield from _compressed(mixer, layer)
        return
    keys, values = _key_and_value(mixer)
    window = mixer.window
    if keys:
        yield LayerCells(layer=layer, keys=keys, values=values, window=window)
    state = 0
    for kept in mixer.states:
        state += bytes_of(kept.fixed_elements("serving"), kept.bits or _STATE_BITS)
        if kept.per_token and kept.sees == "decoder":
            beside = window if kept.limit is not None else None
            keys = kept.per_token - kept.values
            yield LayerCells(layer=layer, keys=keys, values=kept.values, window=beside, beside=True)
    if state:
        yield LayerCells(layer=layer, state=state)


def _key_and_value(mixer: Mixer) -> tuple[int, int]:
    """Elements of a cell."""
    if isinstance(mixer, (Recurrent, CrossAttention)):
        return 0, 0
    elements = mixer.key_value_elements(1, 0, "serving")
    if isinstance(mixer, LatentAttention) and not mixer.expanded:
        return elements, 0
    heads = mixer.num_attention_heads if isinstance(mixer, LatentAttention) else None
    values = (heads or mixer.num_key_value_heads or 0) * (mixer.v_head_dim or 0)
    return (elements - values, values) if elements else (0, 0)


def _compressed(mixer: CompressedAttention, layer: int) -> Iterator[LayerCells]:
    """Keys alone: of the window, of the entries, of the indexer's entries; and float32 rows of
    tokens that wait for theirs, with as many scores (llama_kv_cache_dsv4)."""
    yield LayerCells(layer=layer, keys=mixer.head_dim, window=mixer.window, own=True)
    if mixer.rate is None:
        return
    wide = 1 + mixer.overlaps
    for width in (mixer.head_dim, mixer.index_head_dim if mixer.overlaps else 0):
        if width:
            rows = 2 * (wide * width) * (wide * mixer.rate)
            yield LayerCells(layer=layer, keys=width, rate=mixer.rate, own=True, state=4 * rows)
