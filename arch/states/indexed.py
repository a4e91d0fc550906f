"""Attention that a small indexer makes sparse: it keeps a key per token beside the main cache.

DeepSeek sparse attention (DeepSeek-V3.2) and its kin. nI, dI are the indexer's heads and their
width; all its heads share one key.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from headcount.model.errors import InvalidConfigError
from headcount.model.mixers import Attention, LatentAttention, Mixer, State
from headcount.model.spec import Layer

from ..attention.layer_kinds import FULL, SLIDING
from ..attention.layers import attention, kind_window, latent_attention, layer_count
from ..attention.shape import AttentionShape
from ..config_view import ConfigView
from .hybrid import INDEXED, LINEAR, Builder, Maker, hybrid_kinds
from .linear import kimi_delta
from .mamba import FLOAT32

Shaped = Callable[[ConfigView, LatentAttention], LatentAttention]
OwnersRule = Callable[[ConfigView, int], tuple[bool, ...]]


def same(view: ConfigView, mixer: LatentAttention) -> LatentAttention:
    return mixer


def all_own(view: ConfigView, count: int) -> tuple[bool, ...]:
    return (True,) * count


def indexer_owners(view: ConfigView, count: int) -> tuple[bool, ...]:
    """Which layers have an indexer of their own; the others use the choice of one before them.

    `indexer_types` (full or shared), else the letters of `index_topk_pattern` (F or S), else one in
    `index_topk_freq` layers after `index_skip_topk_offset`.
    """
    given = view.strings("indexer_types")
    if given is None and view.get("index_topk_pattern") is not None:
        pattern = view.get("index_topk_pattern")
        given = tuple(pattern) if isinstance(pattern, (str, list)) else ()
    if given is not None:
        return checked_owners(view, given, count)
    step = view.optional("index_topk_freq", minimum=0) or 1
    offset = view.optional("index_skip_topk_offset", minimum=0)
    skip = 2 if offset is None else offset
    return tuple(max(i - skip + 1, 0) % step == 0 for i in range(count))


def checked_owners(view: ConfigView, given: tuple[str, ...], count: int) -> tuple[bool, ...]:
    words = {"full": True, "F": True, "shared": False, "S": False}
    if len(given) < count or not set(given) <= set(words):
        raise InvalidConfigError(
            f"{view.where}: indexer_types must say full or shared for each of {count} layers"
        )
    return tuple(words[word] for word in given[:count])


def deepseek(changed: Shaped = same, owners: OwnersRule = all_own) -> Builder:
    """Latent attention with an indexer that reads the query's latent, in every layer."""

    def build(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
        hybrid_kinds(shape.kinds, view, {INDEXED: None})
        bare = changed(view, latent_attention(view))
        with_indexer = indexed(view, bare)
        return tuple(
            Layer(index=i, mixers=(with_indexer if owns else bare,))
            for i, owns in enumerate(owners(view, layer_count(view)))
        )

    return build


def indexed(
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


def glm5_next(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """GLM-5-Next: Kimi delta attention, and latent attention without positions whose indexer pools
    `index_kpool` keys. It keeps for each token the key, a gate of the same width and whether it is
    valid."""
    kinds = hybrid_kinds(shape.kinds, view, {INDEXED: INDEXED, FULL: INDEXED, LINEAR: LINEAR})
    owners = indexer_owners(view, layer_count(view))
    recurrent, bare = kimi_delta(shape, view, LINEAR), latent_attention(view)
    d, with_indexer = view.integer("index_head_dim"), indexed(view, bare)
    pooling = view.integer("index_kpool") * d + d * bare.hidden_size
    with_indexer = replace(
        with_indexer,
        other_parameters=with_indexer.other_parameters + pooling,
        states=(State(per_token=2 * d + 1),),
    )
    return tuple(
        Layer(
            index=i,
            mixers=recurrent if kind == LINEAR else (with_indexer if owns else bare,),
        )
        for i, (kind, owns) in enumerate(zip(kinds, owners, strict=True))
    )


def mistral_large4(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """Mistral Large 4: layers without RoPE cache the latent alone, and some read the latent of an
    earlier layer (`kv_source_layers`). The indexer reads the layer's input through a norm."""
    count = layer_count(view)
    hybrid_kinds(shape.kinds, view, {INDEXED: None})
    owners = indexer_owners(view, count)
    rope = _rope_layers(view, count)
    sources = view.integers("kv_source_layers") or tuple(range(count))
    if len(sources) != count or any(not 0 <= s <= i for i, s in enumerate(sources)):
        raise InvalidConfigError(
            f"{view.where}: kv_source_layers must name for each of {count} layers it or one before"
        )
    return tuple(
        Layer(
            index=i,
            mixers=(_large4_mixer(view, rope[i], owners[i], source == i),),
            shares_cache_with=None if source == i else source,
        )
        for i, source in enumerate(sources)
    )


def _rope_layers(view: ConfigView, count: int) -> tuple[int, ...]:
    step = view.optional("no_rope_layer_interval") or 4
    given = view.integers("no_rope_layers")
    return given or tuple(int((i + 1) % step != 0) for i in range(count))


def _large4_mixer(view: ConfigView, rope: int, owns: bool, has_latent: bool) -> LatentAttention:
    mixer = replace(latent_attention(view), q_lora_rank=None)
    if not rope:
        whole = mixer.qk_nope_head_dim + mixer.qk_rope_head_dim
        mixer = replace(mixer, qk_nope_head_dim=whole, qk_rope_head_dim=0)
    scales = 2 * mixer.num_attention_heads  # of the softmax, two per head
    mixer = replace(mixer, has_latent=has_latent, other_parameters=scales)
    if not owns:
        return mixer
    mixer = indexed(view, mixer)
    own = 2 * (mixer.hidden_size + view.integer("index_n_heads"))  # a norm of its input, and scales
    return replace(mixer, other_parameters=mixer.other_parameters + own)


def dots3(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """dots3: sliding layers have heads and ranks of their own, `swa_*` or by layer in
    `per_layer_config`; the rotated key is normed, there is a gate per head, and the indexer's keys
    stay float32."""
    kinds = hybrid_kinds(shape.kinds, view, {INDEXED: None, SLIDING: None, FULL: None})
    own = view.get("per_layer_config")
    by_layer: Mapping[Any, Any] = own if isinstance(own, dict) else {}
    dense = own is None and view.get("use_dsa") is False
    sparse = own is None and view.get("use_dsa") is not False
    wide = {INDEXED: FULL} if dense else {FULL: INDEXED} if sparse else {}
    kinds = tuple(wide.get(kind, kind) for kind in kinds)
    return tuple(
        Layer(index=i, mixers=(_dots3_mixer(view, kind, by_layer.get(str(i)) or by_layer.get(i)),))
        for i, kind in enumerate(kinds)
    )


# The sliding layers' sizes where the file has no `swa_*` keys.
_DOTS3_SLIDING = {
    **{"num_attention_heads": 64, "q_lora_rank": 1024, "kv_lora_rank": 1024},
    **{"head_dim": 256, "qk_nope_head_dim": 192, "v_head_dim": 128},
}


def _dots3_mixer(view: ConfigView, kind: str, own: Any) -> LatentAttention:
    if isinstance(own, dict):
        view = view.overridden(own)
    elif kind == SLIDING:
        swa = {k: view.optional(f"swa_{k}") or v for k, v in _DOTS3_SLIDING.items()}
        rope = view.optional("swa_qk_rope_head_dim") or swa["head_dim"] - swa["qk_nope_head_dim"]
        view = view.overridden({**swa, "qk_rope_head_dim": rope})
    mixer = latent_attention(view)
    if kind == SLIDING:
        window = view.optional("sliding_window") or view.optional("sliding_window_size") or 512
        mixer = replace(mixer, window=window)
    mixer = replace(
        mixer,
        norm_parameters=mixer.qk_rope_head_dim,
        other_parameters=mixer.hidden_size * mixer.num_attention_heads,
    )
    return indexed(view, mixer, bits=FLOAT32) if kind == INDEXED else mixer


def with_key_value(heads: str, width: str) -> Maker:
    """Attention with K/V heads and an indexer of one key head: MiniMax-M3 and Qwen4."""

    def make(shape: AttentionShape, view: ConfigView, kind: str) -> tuple[Mixer, ...]:
        mixer: Attention = attention(shape, view, window=kind_window(shape, view, kind))
        legacy = view.child("sparse_attention_config")  # MiniMax-M3's first files
        count = legacy.optional("sparse_num_index_heads") or view.integer(heads)
        d = legacy.optional("sparse_index_dim") or view.integer(width)
        own = mixer.hidden_size * (count + 1) * d + 2 * d
        return (
            replace(
                mixer,
                other_parameters=mixer.other_parameters + own,
                states=(State(per_token=d),),
            ),
        )

    return make
