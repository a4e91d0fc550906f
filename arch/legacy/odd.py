"""Builders and counts of families that the common decoder cannot say."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headcount.model.errors import InvalidConfigError
from headcount.model.mixers import Attention
from headcount.model.spec import Layer

from ..attention.layer_kinds import FULL, layer_kinds
from ..attention.layers import (
    attention,
    encoder,
    layer_count,
    mixers_by_layer,
    side_by_side,
)
from ..attention.per_layer import (
    listed_values as listed_values,
)
from ..attention.shape import AttentionShape, standard_key_value_heads
from ..config_view import MAX_LAYERS, ConfigView
from ..decoders.glm import (
    chatglm_heads as chatglm_heads,
)
from ..decoders.nemotron import (
    _block_mixers as _block_mixers,
)
from ..decoders.nemotron import (
    nemotron_nas as nemotron_nas,
)


def falcon_key_value_heads(view: ConfigView, heads: int) -> int:
    """The new architecture reads num_kv_heads and ignores multi_query; the old one the reverse."""
    if view.flag("new_decoder_architecture"):
        return standard_key_value_heads(view, heads)
    return multi_query_heads(view, heads)


def multi_query_heads(view: ConfigView, heads: int) -> int:
    """One K/V head if `multi_query`, else one per query head (BigCode, old Falcon)."""
    count = 1 if view.flag("multi_query") else heads
    return int(view.note("num_key_value_heads", count, "derived: multi_query"))


def attn_config_heads(view: ConfigView, heads: int) -> int:
    """`attn_config.kv_n_heads` (DBRX)."""
    return view.child("attn_config").optional("kv_n_heads") or heads


def _read_layers(view: ConfigView, side: str) -> int:
    return view.integer(f"{side}_layers", maximum=MAX_LAYERS)


def _window(view: ConfigView) -> int | None:
    """No such class has windows of its own, but its cache takes one that the config names."""
    return view.optional("sliding_window") or view.optional("attention_chunk_size")


def _bart_side(shape: AttentionShape, view: ConfigView, side: str) -> Attention:
    hidden = view.integer("hidden_size")
    heads = view.integer(f"{side}_attention_heads")
    if hidden % heads:
        raise InvalidConfigError(
            f"{view.where}: d_model {hidden} is not divisible by {side}_attention_heads {heads}"
        )
    d = int(view.note("head_dim", hidden // heads, "derived: d_model / attention heads"))
    bias = view.flag(shape.qkv_bias)
    return Attention(
        hidden_size=hidden,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=d,
        v_head_dim=d,
        window=_window(view) if side == "decoder" else None,
        q_bias=bias,
        k_bias=bias if shape.k_bias is None else view.flag(shape.k_bias),
        v_bias=bias,
        o_bias=view.flag(shape.o_bias),
        cached=side == "decoder",
    )


def _has_encoder(view: ConfigView) -> bool:
    """`architectures` names the class; `is_encoder_decoder` is what that class writes."""
    names = view.strings("architectures") or ("",)
    return not names[0].endswith("ForCausalLM") and view.flag("is_encoder_decoder")


def bart(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """An encoder and a decoder with cross-attention, each with its own number of heads. The class
    for causal language models has the decoder alone."""
    outer = _bart_side(shape, view, "decoder")
    decoder = [(outer, side_by_side(outer))] * _read_layers(view, "decoder")
    if not _has_encoder(view):
        return _two_stacks([], decoder)
    inner = _bart_side(shape, view, "encoder")
    return _two_stacks([(inner,)] * _read_layers(view, "encoder"), decoder)


def _own_layers(view: ConfigView) -> int:
    """As many layers as the encoder, by the class's own name for their number."""
    own = view.attribute_map.get("num_hidden_layers", "num_hidden_layers")
    return layer_count(view.overridden({"num_hidden_layers": view.declared(own)}))


def t5(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """T5: layer 0 of each stack holds the relative position bias, buckets * H."""
    heads, d = view.integer("num_attention_heads"), view.integer("d_kv")
    plain = Attention(
        hidden_size=view.integer("hidden_size"),
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=d,
        v_head_dim=d,
        window=_window(view),
    )
    buckets = view.integer("relative_attention_num_buckets")
    first = replace(plain, other_parameters=buckets * heads)
    cross = side_by_side(plain)
    count = layer_count(view)
    decoder_count = view.optional("num_decoder_layers", maximum=MAX_LAYERS) or _own_layers(view)
    inner = [replace(mixer, cached=False, window=None) for mixer in (first, plain)]
    return _two_stacks(
        [(inner[i > 0],) for i in range(count)],
        [(first if i == 0 else plain, cross) for i in range(decoder_count)],
    )


def _two_stacks(inner: list[Any], outer: list[Any]) -> tuple[Layer, ...]:
    return tuple(
        Layer(index=i, mixers=mixers, stack=stack)
        for stack, side in (("encoder", inner), ("decoder", outer))
        for i, mixers in enumerate(side)
    )


def two_towers(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """CLIP: a text and a vision encoder side by side, neither with a cache."""
    return tuple(
        replace(layer, stack=tower)
        for tower in ("text", "vision")
        for layer in encoder(shape, view.child(f"{tower}_config"))
    )


def gemma(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """Gemma 3n and 4: the last `num_kv_shared_layers` read the cache of the last layer of their
    kind before them, and hold no k and v. With `attention_k_eq_v`, full layers have no v_proj.
    Gemma 4's last layer is full whatever `layer_types` says."""
    kinds = layer_kinds(view, layer_count(view), shape.kinds)
    if shape.per_layer is not None:
        kinds = (*kinds[:-1], FULL)
    own = len(kinds) - (view.optional("num_kv_shared_layers", minimum=0) or 0)
    keys_only = view.flag("attention_k_eq_v")
    mixers = [
        replace(mixer, has_value=not (keys_only and kind == FULL))
        for mixer, kind in zip(mixers_by_layer(shape, view, kinds), kinds, strict=True)
    ]
    return tuple(
        Layer(index=i, mixers=(mixer,)) if i < own else _reader(i, mixer, kinds[:own], kinds[i])
        for i, mixer in enumerate(mixers)
    )


def gemma4_values(view: ConfigView, kinds: tuple[str, ...]) -> list[Mapping[str, Any]]:
    """Full layers have `global_head_dim`, and with `attention_k_eq_v` their own number of K/V
    heads. A file that transformers 5.24 wrote says so in `per_layer_config` instead."""
    given = listed_values(view, len(kinds))
    if given is not None:
        return given
    full: dict[str, Any] = {}
    d = view.optional("global_head_dim")
    if d is not None:
        full["head_dim"] = d
    kv = view.optional("num_global_key_value_heads")
    if kv is not None and view.flag("attention_k_eq_v"):
        full["num_key_value_heads"] = kv
    return [full if kind == FULL else {} for kind in kinds]


def _reader(index: int, mixer: Attention, owners: tuple[str, ...], kind: str) -> Layer:
    """A layer that reads the cache of the last owner of its kind; only its q norm remains. Without
    any owner the cache is that of another model."""
    source = max((i for i, owner in enumerate(owners) if owner == kind), default=None)
    if source is None and owners:
        raise InvalidConfigError(
            f"num_kv_shared_layers leaves layer {index} no earlier {kind} layer to share with"
        )
    shared = replace(mixer, has_key_value=False, norm_parameters=mixer.head_dim)
    return Layer(index=index, mixers=(shared,), shares_cache_with=source)


def mllama(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """Llama 3.2 Vision: `cross_attention_layers` attend to the image instead of the text."""
    mixer = attention(shape, view)
    cross = replace(side_by_side(mixer), norm_parameters=2 * mixer.head_dim)
    chosen = frozenset(view.integers("cross_attention_layers") or ())
    return tuple(
        Layer(index=i, mixers=(cross if i in chosen else mixer,)) for i in range(layer_count(view))
    )
