"""Command R and its kin: one LayerNorm before both halves of a layer."""

from dataclasses import replace

from headcount.model.spec import Layer

from ..architecture import MULTIMODAL, Architecture
from ..attention.layer_kinds import FULL, SLIDING, full_every
from ..attention.shared import LLAMA_ATTENTION
from ..body.body import Body
from ..body.feed_forward import Experts, Mlp, after_dense, typed
from ..body.image_towers import SIGLIP_TOWER, any_image
from ..body.projectors import downsampling, linear
from ..body.towers import one_tower
from ..config_view import ConfigView
from ..gguf.form import Gguf, Windows


def cohere2_moe_kinds(view: ConfigView, count: int) -> tuple[str, ...]:
    """The dense layers at the start have a period of their own."""
    dense = view.optional("first_k_dense_replace", minimum=0) or 0
    first = view.integer("prefix_dense_sliding_window_pattern")
    rest = view.integer("sliding_window_pattern")
    periods = [(i, first) for i in range(dense)] + [(i, rest) for i in range(count - dense)]
    return tuple(FULL if (i + 1) % period == 0 else SLIDING for i, period in periods)


def aya_vision_projector(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """A norm over joined patches and a gated MLP in two matrices."""
    inputs = tower.integer("hidden_size") * downsampling(view) ** 2
    return 2 * inputs + _gated_mlp(view, inputs, text)


def cohere2_vision_projector(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    inputs = tower.integer("hidden_size") * downsampling(view) ** 2
    return _gated_mlp(view, inputs, text)


def _gated_mlp(view: ConfigView, inputs: int, text: ConfigView) -> int:
    out = text.integer("hidden_size")
    width = view.optional("alignment_intermediate_size") or out
    return linear(inputs, width) + linear(width // 2, out)


def cohere_dense_width(view: ConfigView, layer: Layer) -> int:
    """Dense layers before those with experts may have a width of their own."""
    given = view.optional("prefix_dense_intermediate_size")
    return given or view.integer("intermediate_size")


COHERE = Architecture(
    types=("cohere",),
    attention=replace(LLAMA_ATTENTION, norm="heads", norm_if="use_qk_norm"),
    body=Body(norms=1, named=True),  # LayerNorm without a bias, once before both halves
    rotary="pairs",
)
COHERE2 = COHERE.relative(
    "cohere2",
    attention={"kinds": full_every(4, "sliding_window_pattern"), "norm": "none", "norm_if": True},
    gguf=(Gguf(architecture="cohere2", windows=Windows(period=4)),),
)

ARCHITECTURES = (
    COHERE,
    COHERE2,
    COHERE2.relative(
        "cohere2_moe",
        attention={"kinds": cohere2_moe_kinds},
        body=Body(
            norms=1,
            mlp=Mlp(width=cohere_dense_width),
            experts=Experts(
                width="intermediate_size", layers=typed(after_dense), shared="num_shared_experts"
            ),
        ),
        gguf=(Gguf(architecture="cohere2moe", windows=Windows(period=4, full_first=True)),),
    ),
    MULTIMODAL.relative(
        "cohere2_vision",
        body=one_tower(*any_image(SIGLIP_TOWER), projector=cohere2_vision_projector),
    ),
    MULTIMODAL.relative("cohere_compass"),
    COHERE2.relative(
        "cohere_compass_text", attention={"kinds": "full"}, body=Body(norms=1), rotary="halves"
    ),
    MULTIMODAL.relative(
        "aya_vision", body=one_tower(*any_image(SIGLIP_TOWER), projector=aya_vision_projector)
    ),
)
