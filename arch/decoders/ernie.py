"""ERNIE 4.5: one switch for all biases, and experts of their own for images."""

from ..architecture import MULTIMODAL, Architecture
from ..attention.shape import AttentionShape
from ..body.body import Body, Layers
from ..body.feed_forward import Experts, Mlp, after, matrices, per_layer, typed
from ..config_view import ConfigView

ALL_BUT_FIRST = typed(after(1))


def image_experts(view: ConfigView, layers: Layers) -> int:
    """ERNIE 4.5 VL has experts of their own for the tokens of images."""
    hidden, count = view.integer("hidden_size"), view.integer("moe_num_experts")
    width = per_layer(view, "moe_intermediate_size", 1)
    each = count * (matrices(hidden, width, gated=True) + hidden + 1)
    return len(ALL_BUT_FIRST(view, len(layers))) * each


def idle_image_experts(view: ConfigView, layers: Layers) -> int:
    """All experts for images, since a token of text visits none of them."""
    hidden, count = view.integer("hidden_size"), view.integer("moe_num_experts")
    width = per_layer(view, "moe_intermediate_size", 1)
    sparse = ALL_BUT_FIRST(view, len(layers))
    return len(sparse) * count * matrices(hidden, width, gated=True)


def sparse_interval(view: ConfigView, count: int) -> frozenset[int]:
    """From `moe_layer_start_index` to `moe_layer_end_index` every interval-th layer (ERNIE)."""
    step = view.optional("moe_layer_interval") or 1
    first = view.optional("moe_layer_start_index", minimum=0) or 0
    last = view.optional("moe_layer_end_index", minimum=-1)
    last = count - 1 if last is None or last < 0 else last
    return frozenset(i for i in range(count) if (i + 1) % step == 0 and first <= i <= last)


ERNIE4_5 = Architecture(
    types=("ernie4_5",),
    attention=AttentionShape(qkv_bias="use_bias", o_bias="use_bias"),
    body=Body(mlp=Mlp(bias="use_bias"), named=True),
    rotary="pairs",
)

ARCHITECTURES = (
    ERNIE4_5,
    ERNIE4_5.relative(
        "ernie4_5_moe",
        body={
            "experts": Experts(
                layers=sparse_interval, correction=True, shared="moe_num_shared_experts"
            ),
            "head_bias": "use_bias",
        },
    ),
    MULTIMODAL.relative("ernie4_5_vl_moe"),
    ERNIE4_5.relative(
        "ernie4_5_vl_moe_text",
        body={
            "experts": Experts(
                count="moe_num_experts",
                per_token="moe_k",
                layers=ALL_BUT_FIRST,
                correction=True,
                shared="moe_num_shared_experts",
            ),
            "more": image_experts,
            "idle_more": idle_image_experts,
            "named": False,
        },
    ),
)
