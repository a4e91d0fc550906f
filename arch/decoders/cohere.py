"""Command R and its kin: one LayerNorm before both halves of a layer."""

from headcount.model.spec import Layer

from ..architecture import Architecture, ConfigKeys
from ..attention.layer_kinds import FULL, SLIDING, every
from ..attention.shape import AttentionShape
from ..body.body import Body
from ..body.feed_forward import Experts, Mlp, after_dense, typed
from ..body.image_towers import SIGLIP, any_image
from ..body.projectors import downsampling, linear
from ..body.towers import Part, Wrapper
from ..config_view import ConfigView
from ..gguf.form import Gguf, Windows


def cohere2_moe(view: ConfigView, count: int) -> tuple[str, ...]:
    """The dense layers at the start have a period of their own."""
    dense = view.optional("first_k_dense_replace", minimum=0) or 0
    first = view.integer("prefix_dense_sliding_window_pattern")
    rest = view.integer("sliding_window_pattern")
    periods = [(i, first) for i in range(dense)] + [(i, rest) for i in range(count - dense)]
    return tuple(FULL if (i + 1) % period == 0 else SLIDING for i, period in periods)


def aya_vision(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """A norm over joined patches and a gated MLP in two matrices."""
    inputs = tower.integer("hidden_size") * downsampling(view) ** 2
    return 2 * inputs + _gated(view, inputs, text)


def cohere2_vision(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    inputs = tower.integer("hidden_size") * downsampling(view) ** 2
    return _gated(view, inputs, text)


def _gated(view: ConfigView, inputs: int, text: ConfigView) -> int:
    out = text.integer("hidden_size")
    width = view.optional("alignment_intermediate_size") or out
    return linear(inputs, width) + linear(width // 2, out)


def cohere_dense_width(view: ConfigView, layer: Layer) -> int:
    """Dense layers before those with experts may have a width of their own."""
    given = view.optional("prefix_dense_intermediate_size")
    return given or view.integer("intermediate_size")


COHERE = Architecture(
    types=("cohere",),
    attention=AttentionShape(
        qkv_bias="attention_bias", o_bias="attention_bias", norm="heads", norm_if="use_qk_norm"
    ),
    body=Body(norms=1, named=True),  # LayerNorm without a bias, once before both halves
    rotary="pairs",
)
COHERE2 = COHERE.relative(
    "cohere2",
    attention={"kinds": every(4, "sliding_window_pattern"), "norm": "none", "norm_if": True},
    gguf=(Gguf(architecture="cohere2", windows=Windows(period=4)),),
)
COHERE2_MOE = COHERE2.relative(
    "cohere2_moe",
    attention={"kinds": cohere2_moe},
    body=Body(
        norms=1,
        mlp=Mlp(width=cohere_dense_width),
        experts=Experts(
            width="intermediate_size", layers=typed(after_dense), shared="num_shared_experts"
        ),
    ),
    gguf=(Gguf(architecture="cohere2moe", windows=Windows(period=4, full_first=True)),),
)
COHERE2_VISION = Architecture(
    types=("cohere2_vision",),
    config=ConfigKeys(text="text_config"),
    body=Wrapper(parts=(Part(towers=any_image(SIGLIP), projector=cohere2_vision),)),
)
COHERE_COMPASS = COHERE2_VISION.relative("cohere_compass", body=None)
COHERE_COMPASS_TEXT = COHERE2.relative(
    "cohere_compass_text", attention={"kinds": "full"}, body=Body(norms=1), rotary="halves"
)
AYA_VISION = COHERE2_VISION.relative(
    "aya_vision", body={"parts": (Part(towers=any_image(SIGLIP), projector=aya_vision),)}
)
ARCHITECTURES = (
    COHERE,
    COHERE2,
    COHERE2_MOE,
    COHERE2_VISION,
    COHERE_COMPASS,
    COHERE_COMPASS_TEXT,
    AYA_VISION,
)
