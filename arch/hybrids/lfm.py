"""Liquid's models: attention among short convolutions."""

from dataclasses import replace

from headcount.model.errors import InvalidConfigError
from headcount.model.mixers import Mixer, Recurrent, State
from headcount.model.spec import Layer

from ..architecture import MULTIMODAL, Architecture, ConfigKeys, Conversion
from ..attention.layer_kinds import FULL, SLIDING
from ..attention.layers import attention, kind_window
from ..attention.shape import AttentionShape
from ..body.body import Body
from ..body.feed_forward import Experts, Mlp, after
from ..body.image_towers import SIGLIP2_TOWER, any_image
from ..body.projectors import downsampling, linear
from ..body.towers import one_tower
from ..config_view import ConfigView
from ..gguf.form import Gguf, Recurrence
from ..states.hybrid import CONV, LAYER_TYPES, hybrid, plain_attention
from ..states.kinds import listed_layers
from ..tensors.names import G_PROJ_NAMES, TensorNames, separate


def lfm2_vl_projector(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """A norm on demand, and two matrices over joined patches."""
    inputs = tower.integer("hidden_size") * downsampling(view) ** 2
    width, bias = view.integer("projector_hidden_size"), view.flag("projector_bias")
    norm = 2 * inputs if view.flag("projector_use_layernorm") else 0
    return (
        norm
        + linear(inputs, width, bias=bias)
        + linear(width, text.integer("hidden_size"), bias=bias)
    )


def lfm2_width(view: ConfigView, layer: Layer) -> int:
    """LFM2: two thirds, times a factor, rounded up to a multiple, unless that is switched off."""
    width = view.integer("intermediate_size")
    if not view.flag("block_auto_adjust_ff_dim"):
        return width
    width = int(2 * width / 3)
    factor = view.positive("block_ffn_dim_multiplier")
    if factor is None:
        return width
    multiple = view.integer("block_multiple_of")
    return -(-int(factor * width) // multiple) * multiple


def lfm3_norms(view: ConfigView, layer: Layer) -> int:
    """Two more, after each half, unless `use_sandwich_norm` says no."""
    return 4 if view.flag("use_sandwich_norm") else 2


def kinds_needed(view: ConfigView, count: int) -> tuple[str, ...]:
    """For a class that has no rule of its own. Raises InvalidConfigError."""
    raise InvalidConfigError(f"{view.where}: layer_types is missing, and the class has no default")


def lfm3_kinds(view: ConfigView, count: int) -> tuple[str, ...]:
    def kind(i: int) -> str:
        return FULL if i % 4 == 2 else SLIDING if i % 4 == 0 and i > 0 else CONV

    return tuple(kind(i) for i in range(count))


def short_convolution(shape: AttentionShape, view: ConfigView, kind: str) -> tuple[Mixer, ...]:
    """LFM2's gated short convolution: in_proj [3h, h], K columns per channel, out_proj [h, h]."""
    hidden, kernel = view.integer("hidden_size"), view.integer("conv_L_cache")
    biases = 5 * hidden if view.flag("conv_bias") else 0
    return (
        Recurrent(
            form="short convolution",
            hidden_size=hidden,
            weights=4 * hidden * hidden + hidden * kernel + biases,
            biases=biases,
            states=(State(fixed=hidden * kernel, columns=kernel),),
        ),
    )


def head_gated_attention(shape: AttentionShape, view: ConfigView, kind: str) -> tuple[Mixer, ...]:
    """A gate per head, unless `use_attention_gate` is false (LFM3)."""
    mixer = attention(shape, view, window=kind_window(shape, view, kind))
    gate = mixer.hidden_size * mixer.num_attention_heads * view.flag("use_attention_gate")
    return (replace(mixer, other_parameters=gate),)


LFM2_NAMES = TensorNames(
    modules=separate("self_attn", o="out_proj")
    | {"self_attn.q_layernorm": "norm", "self_attn.k_layernorm": "norm"},
    rest="other",
)
LFM3_NAMES = G_PROJ_NAMES.also({"self_attn.gate_proj": "other"}, rest="other")

CONVOLUTIONS = Recurrence(form="short convolution", layers="without heads")

_TIED = {"tie_word_embeddings": ("tie_embedding",)}
# What LFM2's published files hold beside the keys that its class reads.
_OF_FIRST_CODE = ("block_dim", "block_mlp_init_scale", "block_out_init_scale", "conv_dim_out")

LFM2 = Architecture(
    types=("lfm2",),
    config=ConfigKeys(
        aliases=LAYER_TYPES,
        overriding={**_TIED, "intermediate_size": ("block_ff_dim",)},
        unused=_OF_FIRST_CODE,
    ),
    attention=AttentionShape(
        build=hybrid({FULL: plain_attention, CONV: short_convolution}),
        kinds=listed_layers("full_attn_idxs", FULL, CONV, absent=FULL),
        norm="head",
    ),
    body=Body(mlp=Mlp(width=lfm2_width)),
    tensors=LFM2_NAMES,
    gguf=(Gguf(architecture="lfm2", slides="all", recurrence=CONVOLUTIONS),),
)

ARCHITECTURES = (
    LFM2,
    LFM2.relative(
        "lfm2_moe",
        config={"overriding": _TIED},
        attention={"kinds": kinds_needed},
        body=Body(experts=Experts(layers=after("num_dense_layers"))),
        conversion=Conversion(
            variant={"num_hidden_layers": 2, "layer_types": ["full_attention"] * 2}
        ),
        gguf=(Gguf(architecture="lfm2moe", recurrence=CONVOLUTIONS),),
    ),
    LFM2.relative(
        "lfm3",
        config=ConfigKeys(aliases=LAYER_TYPES),
        attention={
            "build": hybrid(
                {FULL: head_gated_attention, SLIDING: head_gated_attention, CONV: short_convolution}
            ),
            "kinds": lfm3_kinds,
            "qkv_bias": "attention_bias",
            "o_bias": "attention_bias",
        },
        body=Body(norms=lfm3_norms),
        tensors=LFM3_NAMES,
    ),
    MULTIMODAL.relative(
        "lfm2_vl",
        config={"overriding": _TIED},
        body=one_tower(*any_image(SIGLIP2_TOWER), projector=lfm2_vl_projector),
    ),
    MULTIMODAL.relative("lfm3_vl"),
)
