"""T5 and its kin: relative position biases, which layer 0 of a stack holds for all."""

from dataclasses import replace

from headcount.model import limits
from headcount.model.mixers import Attention
from headcount.model.spec import Layer

from ..architecture import MULTIMODAL, OTHER_STACKS, Architecture, ConfigKeys, Stored
from ..attention.layers import cross_attention_beside, layer_count
from ..attention.shape import AttentionShape
from ..attention.two_stacks import cache_window, change_stack, two_stacks
from ..body.body import Body, no_head, one_per_mixer
from ..body.feed_forward import Mlp
from ..body.plain_experts import experts_and_copies, idle_experts
from ..config_view import ConfigView
from ..gguf.form import Gguf
from ..gguf.towers import t5_encoder_stack, t5_stacks
from ..modules.names import FeedForwardNames
from ..tensors.names import TensorNames, under
from ..tying import always, config_says
from .bart import SEQ2SEQ


def _encoder_depth(view: ConfigView) -> int:
    """As many layers as the encoder, by the class's own name for their number."""
    own = view.attribute_map.get("num_hidden_layers", "num_hidden_layers")
    return layer_count(view.overridden({"num_hidden_layers": view.declared(own)}))


def t5_layers(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """T5: layer 0 of each stack holds the relative position bias, buckets * H."""
    heads, d = view.integer("num_attention_heads"), view.integer("d_kv")
    plain = Attention(
        hidden_size=view.integer("hidden_size"),
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=d,
        v_head_dim=d,
        window=cache_window(view),
    )
    buckets = view.integer("relative_attention_num_buckets")
    first = replace(plain, other_parameters=buckets * heads)
    cross = cross_attention_beside(plain)
    count = layer_count(view)
    decoder_count = view.optional(
        "num_decoder_layers", maximum=limits.LAYERS.most
    ) or _encoder_depth(view)
    inner = [replace(mixer, cached=False, window=None) for mixer in (first, plain)]
    return two_stacks(
        [(inner[i > 0],) for i in range(count)],
        [(first if i == 0 else plain, cross) for i in range(decoder_count)],
    )


def longt5_layers(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """LongT5: with transient-global attention the encoder has a second position bias and a norm."""
    layers = t5_layers(shape, view)
    if view.get("encoder_attention_type") != "transient-global":
        return layers
    more = view.integer("relative_attention_num_buckets") * view.integer("num_attention_heads")
    hidden = view.integer("hidden_size")
    layers = change_stack(layers, "encoder", norm_parameters=hidden)
    return change_stack(layers, "encoder", 0, other_parameters=2 * more)


def umt5_layers(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """UMT5: every layer has a position bias of its own."""
    more = view.integer("relative_attention_num_buckets") * view.integer("num_attention_heads")
    layers = change_stack(t5_layers(shape, view), "encoder", other_parameters=more)
    return change_stack(layers, "decoder", other_parameters=more)


def t5_decoder_layers(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """The decoder of T5 alone (Pix2Struct, whose encoder sees an image)."""
    view = view.overridden({"num_decoder_layers": layer_count(view)})
    return tuple(layer for layer in t5_layers(shape, view) if layer.stack == "decoder")


def t5_gated(view: ConfigView) -> bool:
    """`feed_forward_proj` is `relu` in T5 and `gated-gelu` in T5 v1.1, unless the file says it."""
    said = view.config.get("is_gated_act")
    if isinstance(said, bool):
        return said
    value = view.get("feed_forward_proj")
    return isinstance(value, str) and value.startswith("gated")


T5_PARTS = {"q": "q", "k": "k", "v": "v", "o": "o", "other": "relative_attention_bias"}

T5_NAMES = TensorNames(
    modules=under("layer.0.SelfAttention", **T5_PARTS),
    cross=under("layer.1.EncDecAttention", **T5_PARTS),
)
LONGT5_NAMES = TensorNames(
    modules={
        **T5_NAMES.modules,
        **under("layer.0.LocalSelfAttention", **T5_PARTS),
        **under("layer.0.TransientGlobalSelfAttention", **T5_PARTS),
        "layer.0.TransientGlobalSelfAttention.global_relative_attention_bias": "other",
        "layer.0.TransientGlobalSelfAttention.global_input_layer_norm": "norm",
    },
    cross=T5_NAMES.cross,
)

_PIX2STRUCT = {**T5_PARTS, "q": "query", "k": "key", "v": "value", "o": "output"}

PIX2STRUCT_NAMES = TensorNames(
    modules=under("self_attention.attention", **_PIX2STRUCT),
    cross=under("encoder_decoder_attention.attention", **_PIX2STRUCT),
)

T5_BODY = Body(
    norms=one_per_mixer,
    final_norms=2,
    mlp=Mlp(width="d_ff", gated=t5_gated),
    classes={**SEQ2SEQ, "T5Model": no_head},
    default_class="ForConditionalGeneration",
)
NO_CROSS_CACHE = (
    "llama.cpp caches no K/V of the cross-attention, but the encoder's output, as float32."
)

LAST_IN_FLOAT32 = Stored(kept_wide=("wo",))

T5 = Architecture(
    types=("t5", "mt5"),
    config=ConfigKeys(tied=always),
    attention=AttentionShape(build=t5_layers, kv_heads_from="query heads"),
    body=replace(T5_BODY, named=True),
    tensors=T5_NAMES,
    feed_forward=FeedForwardNames(mlp="DenseReluDense", leaves=("wi_0", "wi_1", "wo")),
    rotary="none",
    stored=LAST_IN_FLOAT32,
    gguf=(
        Gguf(architecture="t5", reads=t5_stacks, note=NO_CROSS_CACHE),
        Gguf(architecture="t5encoder", reads=t5_encoder_stack),
    ),
)

ARCHITECTURES = (
    T5,
    T5.relative("pop2piano", body=None, stored=LAST_IN_FLOAT32),
    T5.relative("udop", body=None, rotary=None, stored=LAST_IN_FLOAT32),
    T5.relative(
        "umt5",
        attention={"build": umt5_layers},
        body=replace(T5_BODY, classes={**SEQ2SEQ, "UMT5Model": no_head}),
        stored=LAST_IN_FLOAT32,
    ),
    T5.relative(
        "longt5",
        attention={"build": longt5_layers},
        tensors=LONGT5_NAMES,
        body=replace(T5_BODY, classes={**SEQ2SEQ, "LongT5Model": no_head}),
    ),
    T5.relative(
        "switch_transformers",
        config={"tied": config_says},
        body=replace(
            T5_BODY,
            mlp=Mlp(width="d_ff", gated=False),
            more=experts_and_copies,
            idle_more=idle_experts,
            classes={**SEQ2SEQ, "SwitchTransformersModel": no_head},
        ),
    ),
    T5.relative(
        "pix2struct_text_model",
        config={"tied": config_says},
        attention={"build": t5_decoder_layers, "kv_heads_from": "config"},
        tensors=PIX2STRUCT_NAMES,
        body=None,
        rotary=None,
    ),
    MULTIMODAL.relative("pix2struct", verification=OTHER_STACKS),
)
