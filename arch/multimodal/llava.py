"""LLaVA and its kin: an image tower, and two matrices to a language model."""

from ..architecture import Architecture, ConfigKeys
from ..body.image_towers import ANY_IMAGE, SIGLIP, any_image
from ..body.projectors import linear
from ..body.towers import Part, Wrapper
from ..body.uncounted import TIMM
from ..config_view import ConfigView
from ..tying import either_word, own_word


def image_newline(view: ConfigView, text: ConfigView) -> int:
    """A vector that ends each row of patches."""
    return text.integer("hidden_size")


def _biased(view: ConfigView) -> bool:
    return view.get("multimodal_projector_bias") is not False


def _features(view: ConfigView, name: str = "vision_feature_layer") -> int:
    """How many layers of the tower are read side by side."""
    layers = view.get(name)
    return len(layers) if isinstance(layers, list) else 1


def llava_projector(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """Two matrices."""
    inputs, out = tower.integer("hidden_size") * _features(view), text.integer("hidden_size")
    bias = _biased(view)
    return linear(inputs, out, bias=bias) + linear(out, out, bias=bias)


def vipllava_projector(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """A norm over several layers of the tower, and two matrices."""
    layers = view.integers("vision_feature_layers") or ()
    inputs, out = tower.integer("hidden_size") * len(layers), text.integer("hidden_size")
    return 2 * inputs + linear(inputs, out) + linear(out, out)


LLAVA = Architecture(
    types=("llava",),
    config=ConfigKeys(text="text_config", tied=either_word),
    body=Wrapper(parts=(Part(towers=ANY_IMAGE, projector=llava_projector),)),
)
LLAVA_NEXT = LLAVA.relative("llava_next", config={"tied": own_word}, body={"extra": image_newline})
LLAVA_NEXT_VIDEO = LLAVA_NEXT.relative("llava_next_video", config={"tied": either_word})
LLAVA_ONEVISION = LLAVA_NEXT_VIDEO.relative(
    "llava_onevision", body={"parts": (Part(towers=any_image(SIGLIP), projector=llava_projector),)}
)
VIDEO_LLAVA = Architecture(
    types=("video_llava",),
    config=ConfigKeys(text="text_config"),
    body=Wrapper(parts=(Part(towers=ANY_IMAGE, projector=llava_projector, copies=2),)),
)
VIPLLAVA = VIDEO_LLAVA.relative(
    "vipllava", body={"parts": (Part(towers=ANY_IMAGE, projector=vipllava_projector),)}
)
FAST_VLM = Architecture(
    types=("fast_vlm",), config=ConfigKeys(text="text_config", tied=either_word), uncounted=TIMM
)
OVIS2 = LLAVA_NEXT.relative("ovis2", "got_ocr2", "pp_chart2table", body=None)
PERCEPTION_LM = OVIS2.relative("perception_lm", uncounted=TIMM)
VIDEO_LLAMA_3 = LLAVA.relative("video_llama_3", body=None)

ARCHITECTURES = (
    LLAVA,
    LLAVA_NEXT,
    LLAVA_NEXT_VIDEO,
    LLAVA_ONEVISION,
    VIDEO_LLAVA,
    VIPLLAVA,
    FAST_VLM,
    OVIS2,
    PERCEPTION_LM,
    VIDEO_LLAMA_3,
)
