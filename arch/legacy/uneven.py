"""Attention that differs from layer to layer, or is put together in a way of its own."""

from dataclasses import replace

from headcount.model.mixers import Attention, Mixer
from headcount.model.spec import Layer

from ..attention.layer_kinds import SLIDING
from ..attention.layers import attention, build_layers, decoder, layer_count
from ..attention.per_layer import (
    Values as Values,
)
from ..attention.per_layer import (
    for_each_layer as for_each_layer,
)
from ..attention.shape import AttentionShape
from ..config_view import ConfigView, MissingValueError
from ..decoders.deepseek import (
    two_per_block as two_per_block,
)
from ..decoders.gpt_oss import (
    gate_by_config as gate_by_config,
)
from ..decoders.gpt_oss import (
    heads_per_layer as heads_per_layer,
)
from ..decoders.gpt_oss import (
    step_values as step_values,
)
from ..decoders.olmo import (
    molmo_norm as molmo_norm,
)


def openelm_heads(view: ConfigView, kinds: tuple[str, ...]) -> Values:
    """`num_query_heads` and `num_kv_heads` list a number for each layer."""
    heads = for_each_layer(view, "num_query_heads", len(kinds))
    kv = for_each_layer(view, "num_kv_heads", len(kinds))
    if heads is None or kv is None:
        raise MissingValueError(f"{view.where}: num_query_heads and num_kv_heads must be given")
    return [
        {"num_attention_heads": n, "num_key_value_heads": m} for n, m in zip(heads, kv, strict=True)
    ]


def mimo_window(view: ConfigView) -> int:
    """`sliding_window_size` counts the tokens before the query only (MiMo-V2-Flash)."""
    before = view.optional("sliding_window_size")
    return view.integer("sliding_window") if before is None else before + 1


def mimo_values(view: ConfigView, kinds: tuple[str, ...]) -> Values:
    """Sliding layers have twice the K/V heads, and attention sinks."""
    kv = view.integer("num_key_value_heads")
    own = {"num_key_value_heads": 2 * kv, "attention_sinks": True}
    return [own if kind == SLIDING else {} for kind in kinds]


def sinks_by_layer(view: ConfigView, heads: int, head_dim: int) -> int:
    return heads if view.flag("attention_sinks") else 0


def last_is_biased(view: ConfigView, kinds: tuple[str, ...]) -> Values:
    """GPT-NeoX Japanese: only the last layer's output has a bias."""
    return [{"dense_bias": i == len(kinds) - 1} for i in range(len(kinds))]


def biased(view: ConfigView, heads: int, head_dim: int) -> int:
    return view.integer("hidden_size") if view.flag("dense_bias") else 0


def half_of_local_attention(view: ConfigView) -> int:
    """ModernBERT: `local_attention` counts both sides; `sliding_window` overrides it."""
    return view.optional("sliding_window") or view.integer("local_attention") // 2


def mixture_of_attention(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """JetMoE: each token asks `num_experts_per_tok` experts, which have query and output
    projections of their own for as many heads as there are K/V heads (arXiv 2404.07413)."""
    hidden, kv, d = (
        view.integer(name) for name in ("hidden_size", "num_key_value_heads", "head_dim")
    )
    experts, chosen = view.integer("num_local_experts"), view.integer("num_experts_per_tok")
    mixer = Attention(
        hidden_size=hidden,
        window=view.optional("sliding_window"),
        num_attention_heads=kv * chosen,
        num_key_value_heads=kv,
        head_dim=d,
        v_head_dim=d,
        has_query_output=False,
        other_parameters=hidden + experts * hidden * (2 * kv * d + 1),
    )
    return tuple(Layer(index=i, mixers=(mixer,)) for i in range(layer_count(view)))


def doge(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """Doge: a dynamic mask from `A` and `dt_proj`, from all values to a number per K/V head."""
    biased = view.flag("attention_bias")

    def masked(mixer: Mixer) -> Attention:
        assert isinstance(mixer, Attention)
        kv = mixer.num_key_value_heads
        return replace(mixer, other_parameters=kv + kv * (kv * mixer.head_dim + biased))

    return tuple(
        replace(layer, mixers=tuple(masked(mixer) for mixer in layer.mixers))
        for layer in decoder(shape, view)
    )


def shared_groups(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """ALBERT: all layers of a group run the same weights, which its first layer holds."""
    own = replace(attention(shape, view), cached=False)
    again = replace(own, owns_parameters=False)
    count, groups = layer_count(view), view.integer("num_hidden_groups")
    inner = view.integer("inner_group_num")
    found: list[Layer] = []
    for index in range(count):
        group = index * groups // count
        is_first = index == 0 or group != (index - 1) * groups // count
        mixers = (own if is_first else again,) * inner
        found.append(Layer(index=index, mixers=mixers, stack="encoder", number=group))
    return tuple(found)


def assistant(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """Gemma 4's drafting models: every layer reads the cache of the model that they draft for."""
    from ..nested import nested

    text, inner = nested(view, "text_config")
    shared = text.optional("num_kv_shared_layers", minimum=0) or layer_count(text)
    return build_layers(inner.attention, text.overridden({"num_kv_shared_layers": shared}))
