"""Inkling: float32 convolutions over keys, values and outputs, and a bias by distance."""

from dataclasses import replace

from headcount.model.mixers import Attention, Mixer, State
from headcount.model.spec import Layer

from ..architecture import JOINED, MULTIMODAL, Architecture, ConfigKeys
from ..attention.layers import check_grouping
from ..attention.shape import AttentionShape, Builder
from ..body.body import Body, Layers
from ..body.feed_forward import Experts, Mlp, after, matrices, typed
from ..config_view import ConfigView
from ..states.hybrid import HYBRID, HYBRID_SLIDING, LAYER_TYPES, MixerMaker, hybrid
from ..states.kinds import every_nth
from ..states.loops import repeated
from ..states.mamba import FLOAT32
from ..tensors.names import LLAMA_NAMES, TensorNames, under
from ..tying import never

SPARSE = typed(after("dense_mlp_idx"))


def dense_width(view: ConfigView, layer: Layer) -> int:
    return view.optional("dense_intermediate_size") or view.integer("intermediate_size")


def expert_width(view: ConfigView) -> int:
    """Beside `dense_intermediate_size`, `intermediate_size` is that of the experts."""
    swapped = view.optional("dense_intermediate_size") is not None
    return view.integer("intermediate_size" if swapped else "moe_intermediate_size")


def convolutions_and_shared_experts(view: ConfigView, layers: Layers) -> int:
    """A norm of the embedding; in each layer two short convolutions and a scale of the MLP; and the
    shared experts, which the router weighs like the others."""
    hidden, count = view.integer("hidden_size"), len(layers)
    shared = view.optional("n_shared_experts", minimum=0) or 0
    expert = matrices(hidden, expert_width(view), gated=True)
    each = 2 * hidden * view.integer("conv_kernel_size") + 1
    sparse = len(SPARSE(view, count))
    return hidden + count * each + sparse * shared * (hidden + expert)


def _inkling_other(view: ConfigView, mixer: Attention, sliding: bool) -> int:
    """r_proj [H*d_rel, h] and the bias by distance [d_rel, extent]."""
    extent = view.integer("sliding_window") if sliding else view.integer("rel_extent")
    relative = view.integer("d_rel")
    return relative * (mixer.hidden_size * mixer.num_attention_heads + extent)


def _inkling2_other(view: ConfigView, mixer: Attention, sliding: bool) -> int:
    """The same with scales per head of q and of the bias, a gate of the output, a sink per head
    from the input, and in full layers convolution weights that the input makes."""
    hidden, heads, relative = mixer.hidden_size, mixer.num_attention_heads, view.integer("d_rel")
    width = heads * mixer.head_dim
    kernels = 0 if sliding else 2 * hidden * mixer.num_key_value_heads
    return (
        _inkling_other(view, mixer, sliding)
        + width
        + heads * relative
        + hidden * (width + heads)
        + kernels * view.integer("conv_kernel_size")
    )


def _inkling_heads(view: ConfigView, sliding: bool) -> Attention:
    prefix = "swa_" if sliding else ""
    heads = view.integer(f"{prefix}num_attention_heads")
    kv = view.integer(f"{prefix}num_key_value_heads")
    d = view.integer(f"{prefix}head_dim")
    check_grouping(view, heads, kv)
    return Attention(
        hidden_size=view.integer("hidden_size"),
        num_attention_heads=heads,
        num_key_value_heads=kv,
        head_dim=d,
        v_head_dim=d,
        window=view.integer("sliding_window") if sliding else None,
    )


def inkling_attention(*, second: bool) -> MixerMaker:
    """Inkling and, with `second`, Inkling 2: a relative position bias, and float32 convolutions
    over k, v and the outputs of attention and MLP, whose states are kept."""

    def make(shape: AttentionShape, view: ConfigView, kind: str) -> tuple[Mixer, ...]:
        sliding = kind == HYBRID_SLIDING
        mixer = _inkling_heads(view, sliding)
        hidden, kernel = mixer.hidden_size, view.integer("conv_kernel_size")
        width = mixer.num_key_value_heads * mixer.head_dim
        count = (_inkling2_other if second else _inkling_other)(view, mixer, sliding)
        kept = State(fixed=kernel * 2 * (width + hidden), bits=FLOAT32)
        norms = 0 if second else 2 * mixer.head_dim
        other = count + 2 * width * kernel
        return (replace(mixer, norm_parameters=norms, other_parameters=other, states=(kept,)),)

    return make


def looped_layers(build: Builder, start: str, end: str, passes: str) -> Builder:
    """Layers from `start` to `end` run `passes` times with the same weights; the further passes'
    caches are appended after those of all layers."""

    def again(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
        layers = build(shape, view)
        first, last = view.integer(start, minimum=0), view.integer(end)
        return repeated(layers, first, last, view.integer(passes))

    return again


def inkling_kinds(view: ConfigView, count: int) -> tuple[str, ...]:
    local = view.integers("local_layer_ids")
    if local is None:
        return every_nth(6, HYBRID, HYBRID_SLIDING)(view, count)
    return tuple(HYBRID_SLIDING if i in local else HYBRID for i in range(count))


_CONVOLUTIONS = {
    **{f"self_attn.{part}_sconv.conv1d": (part, 0) for part in "kv"},
    **{f"attn.{part}_sconv": (part, 0) for part in "kv"},
}

INKLING_NAMES = TensorNames(
    modules={
        **LLAMA_NAMES.modules,
        **under("attn", q="wq_du", k="wk_dv", v="wv_dv", o="wo_ud"),
        **{f"self_attn.{part}_proj.linear": part for part in "qkvo"},
        **dict.fromkeys(("attn.q_norm", "attn.k_norm"), "norm"),
        **dict.fromkeys(("self_attn.r_proj", "self_attn.rel_logits_proj.proj"), "other"),
        **dict.fromkeys(("attn.wr_du", "attn.rel_logits_proj.proj"), "other"),
        **dict.fromkeys(_CONVOLUTIONS, "other"),
        **dict.fromkeys(("attn_sconv.conv1d", "attn_sconv"), ""),
    },
    key_value=_CONVOLUTIONS,
    rest="other",
)

_DYNAMIC = {"weight_proj": 0, "static_w": 1}

# Layers that see everything compute what convolves their keys and values from the input, too.
INKLING2_NAMES = INKLING_NAMES.also(
    {
        **{f"attn.{name}": "other" for name in ("attn_sink_proj", "gate_attn")},
        **{f"attn.{name}.scale": "other" for name in ("q_l2_clip", "rel_l2_clip")},
        **{f"attn.{part}_sconv.{name}": "other" for part in "kv" for name in _DYNAMIC},
    },
    key_value={
        **_CONVOLUTIONS,
        **{f"attn.{part}_sconv.{name}": (part, i) for part in "kv" for name, i in _DYNAMIC.items()},
    },
)
# What a layer reads in a later pass is mixed by gates, which know of no heads.
INKLING2_LOOP_NAMES = INKLING2_NAMES.also(
    {
        f"controllers.{read}.{gate}_weight": ""
        for read in ("attn", "k", "v", "mlp")
        for gate in ("down", "gain", "forget")
    }
)

_ATTENTION = dict.fromkeys((HYBRID, HYBRID_SLIDING), inkling_attention(second=False))
_ATTENTION_2 = dict.fromkeys((HYBRID, HYBRID_SLIDING), inkling_attention(second=True))

INKLING_TEXT = Architecture(
    types=("inkling_text",),
    config=ConfigKeys(aliases=LAYER_TYPES, unused=("dense_intermediate_size",), tied=never),
    attention=AttentionShape(
        build=hybrid(_ATTENTION),
        kinds=inkling_kinds,
        key_value_keys=("num_key_value_heads", "swa_num_key_value_heads"),
    ),
    body=Body(
        mlp=Mlp(width=dense_width),
        experts=Experts(count="n_routed_experts", width=expert_width, layers=SPARSE),
        more=convolutions_and_shared_experts,
    ),
    tensors=INKLING_NAMES,
)
INKLING2_TEXT = INKLING_TEXT.relative(
    "inkling2_text",
    attention={"build": hybrid(_ATTENTION_2), "kinds": every_nth(6, HYBRID, HYBRID_SLIDING)},
    body=None,
    tensors=INKLING2_NAMES,
    verification=JOINED,
)

ARCHITECTURES = (
    INKLING_TEXT,
    MULTIMODAL.relative("inkling_mm_model", "inkling2", "inkling2_loop"),
    INKLING2_TEXT,
    INKLING2_TEXT.relative(
        "inkling2_loop_text",
        attention={
            "build": looped_layers(
                hybrid(_ATTENTION_2),
                "loop_layer_index_start",
                "loop_layer_index_end",
                "loop_num_passes",
            )
        },
        tensors=INKLING2_LOOP_NAMES,
        verification=JOINED,
    ),
)
