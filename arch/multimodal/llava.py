"""LLaVA and its kin: an image tower, and two matrices to a language model."""

from dataclasses import replace

from headcount.model import limits

from ..architecture import MULTIMODAL
from ..attention.shared import TOWER_MHA_BIASED
from ..body.body import Layers, lm_head, no_head
from ..body.image_embeddings import patches
from ..body.image_towers import ANY_IMAGE, SIGLIP_TOWER, any_image
from ..body.projectors import linear, two_matrices
from ..body.shared import IMAGE
from ..body.towers import Part, Tower, Wrapper, fixed_tower, one_tower
from ..body.uncounted import TIMM, UncountedError
from ..config_view import ConfigView
from ..decoders.qwen import QWEN2
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


def navit_patches(view: ConfigView, layers: Layers) -> int:
    """Patches of images of any size, whose positions are rotary."""
    return patches(view, bias=True)


def encoder_of_the_file(view: ConfigView, text: ConfigView) -> int:
    """Nothing more. Raises UncountedError where the file names an encoder that lies elsewhere, and
    for a projector of another kind."""
    if not isinstance(view.config.get("vision_encoder_config"), dict):
        raise UncountedError(
            "its image tower is a model of its own, which it names by vision_encoder"
        )
    if view.get("mm_projector_type") not in (None, "mlp2x_gelu"):
        raise UncountedError("its mm_projector_type is not counted")
    return 0


# VideoLLaMA 3 (arXiv 2501.13106)
NAVIT_TOWER = Tower(
    model_type="video_llama_3_vision",
    attention=TOWER_MHA_BIASED,
    body=replace(IMAGE, more=navit_patches),
)
VL3_TOWER = replace(
    NAVIT_TOWER,
    model_type="videollama3_vision_encoder",
    defaults={  # of Videollama3VisionEncoderConfig
        **{"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12},
        **{"num_attention_heads": 12, "num_channels": 3, "patch_size": 16},
    },
)
VIDEO_LLAMA3 = MULTIMODAL.relative(
    "video_llama_3",
    config={"tied": either_says},
    body=fixed_tower(NAVIT_TOWER, projector=two_matrices),
)
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
    VIDEO_LLAMA3,
    # The same in the code that is published with it, whose language model stands at the top.
    VIDEO_LLAMA3.relative(
        "videollama3_qwen2",
        config={"tied": config_says, "defaults": {"text_config": {"model_type": QWEN2.types[0]}}},
        body=Wrapper(
            parts=(
                Part(
                    towers=(VL3_TOWER,),
                    projector=two_matrices,
                    key="vision_encoder_config",
                ),
            ),
            more=encoder_of_the_file,
            classes={"ForCausalLM": lm_head, "Model": no_head},
        ),
        spellings=("videollama3",),
    ),
)
