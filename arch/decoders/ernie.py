"""ERNIE 4.5 and PaddleOCR-VL."""

from dataclasses import replace

from ..architecture import Architecture, ConfigKeys
from ..attention.shape import AttentionShape
from ..body.body import Body, Layers
from ..body.feed_forward import Experts, Mlp, after, matrices, per_layer, typed
from ..body.image_towers import SMOL
from ..body.projectors import linear
from ..body.towers import BIASED_HEADS, Part, Wrapper
from ..config_view import ConfigView
from ..tensors.names import BART
from ..tying import either_word


def paddleocr_vl(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """A norm of patches, and two matrices over joined ones."""
    hidden = tower.integer("hidden_size")
    joined = hidden * tower.integer("spatial_merge_size") ** 2
    return 2 * hidden + linear(joined, joined) + linear(joined, text.integer("hidden_size"))


# The layers that hold experts in some families whose extras depend on it.
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


def between(view: ConfigView, count: int) -> frozenset[int]:
    """From `moe_layer_start_index` to `moe_layer_end_index` every interval-th layer (ERNIE)."""
    step = view.optional("moe_layer_interval") or 1
    first = view.optional("moe_layer_start_index", minimum=0) or 0
    last = view.optional("moe_layer_end_index", minimum=-1)
    last = count - 1 if last is None or last < 0 else last
    return frozenset(i for i in range(count) if (i + 1) % step == 0 and first <= i <= last)


PADDLE = replace(SMOL, model_type="paddleocr_vl_vision")


ERNIE4_5 = Architecture(
    types=("ernie4_5",),
    attention=AttentionShape(qkv_bias="use_bias", o_bias="use_bias"),
    body=Body(mlp=Mlp(bias="use_bias"), named=True),
    rotary="pairs",
)
ERNIE4_5_MOE = ERNIE4_5.relative(
    "ernie4_5_moe",
    body={
        "experts": Experts(layers=between, correction=True, shared="moe_num_shared_experts"),
        "head_bias": "use_bias",
    },
)
ERNIE4_5_VL_MOE = Architecture(types=("ernie4_5_vl_moe",), config=ConfigKeys(text="text_config"))
ERNIE4_5_VL_MOE_TEXT = ERNIE4_5.relative(
    "ernie4_5_vl_moe_text",
    body={
        "experts": Experts(
            count="moe_num_experts",
            per_token="moe_k",
            layers=typed(after(1)),
            correction=True,
            shared="moe_num_shared_experts",
        ),
        "extra": image_experts,
        "idle_extra": idle_image_experts,
        "named": False,
    },
)
PADDLEOCR_VL = Architecture(
    types=("paddleocr_vl",),
    config=ConfigKeys(text="text_config", tied=either_word),
    body=Wrapper(parts=(Part(towers=(PADDLE,), projector=paddleocr_vl),)),
)
PADDLEOCR_VL_TEXT = ERNIE4_5.relative("paddleocr_vl_text", body={"named": False}, rotary="halves")
PADDLEOCR_VL_VISION = Architecture(
    types=("paddleocr_vl_vision",),
    attention=replace(BIASED_HEADS, build=None, cached=False),
    tensors=BART,
)

ARCHITECTURES = (
    ERNIE4_5,
    ERNIE4_5_MOE,
    ERNIE4_5_VL_MOE,
    ERNIE4_5_VL_MOE_TEXT,
    PADDLEOCR_VL,
    PADDLEOCR_VL_TEXT,
    PADDLEOCR_VL_VISION,
)
