"""LLaVA and its kin: an image tower, and two matrices to a language model."""

from dataclasses import replace

from headcount.model import limits

from ..architecture import MULTIMODAL
from ..body.image_towers import ANY_IMAGE, SIGLIP_TOWER, any_image
from ..body.projectors import linear
from ..body.towers import Part, Wrapper, one_tower
from ..body.uncounted import TIMM
from ..config_view import ConfigView
from ..tying import config_says, either_says


def image_newline(view: ConfigView, text: ConfigView) -> int:
    """A vector that ends each row of patches."""
    return text.integer("hidden_size")


def _biased(view: ConfigView) -> bool:
    return view.flag("multimodal_projector_bias", absent=True)


def _features(view: ConfigView) -> int:
    """How many layers of the tower are read side by side."""
    layers = view.get("vision_feature_layer")
    return len(layers) if isinstance(layers, list) else 1


def llava_projector(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """Two matrices."""
    inputs, out = tower.integer("hidden_size") * _features(view), text.integer("hidden_size")
    bias = _biased(view)
    return linear(inputs, out, bias=bias) + linear(out, out, bias=bias)


def vipllava_projector(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """A norm over several layers of the tower, and two matrices."""
    layers = view.integers("vision_feature_layers", minimum=-limits.LAYERS.most) or ()
    inputs, out = tower.integer("hidden_size") * len(layers), text.integer("hidden_size")
    return 2 * inputs + linear(inputs, out) + linear(out, out)


LLAVA = MULTIMODAL.relative(
    "llava", config={"tied": either_says}, body=one_tower(*ANY_IMAGE, projector=llava_projector)
)
LLAVA_NEXT = LLAVA.relative(
    "llava_next", config={"tied": config_says}, body={"more": image_newline}
)
LLAVA_NEXT_VIDEO = LLAVA_NEXT.relative("llava_next_video", config={"tied": either_says})

ARCHITECTURES = (
    LLAVA,
    LLAVA_NEXT,
    LLAVA_NEXT_VIDEO,
    LLAVA_NEXT_VIDEO.relative(
        "llava_onevision",
        body=replace(
            one_tower(*any_image(SIGLIP_TOWER), projector=llava_projector), more=image_newline
        ),
    ),
    MULTIMODAL.relative(
        "video_llava",
        body=Wrapper(parts=(Part(towers=ANY_IMAGE, projector=llava_projector, copies=2),)),
    ),
    MULTIMODAL.relative("vipllava", body=one_tower(*ANY_IMAGE, projector=vipllava_projector)),
    MULTIMODAL.relative("fast_vlm", config={"tied": either_says}, uncounted=TIMM),
    MULTIMODAL.relative("ovis2", "got_ocr2", "pp_chart2table"),
    MULTIMODAL.relative("perception_lm", uncounted=TIMM),
    MULTIMODAL.relative("video_llama_3", config={"tied": either_says}),
)
