"""The table of multimodal models whose towers are counted; one without a row here has no total."""

from ..body.body import lm_head, no_head
from ..body.image_towers import (
    any_image as _any,
)
from ..body.towers import Part, Wrapper
from ..decoders.glm_vision import GLM4V_MOE_TOWER, GLM4V_TOWER, GLM_OCR_TOWER
from . import joints, projectors
from . import tower_rows as towers

LLAVA = Part(towers=_any(towers.CLIP), projector=joints.llava)
IDEFICS3 = Part(towers=(towers.IDEFICS3,), projector=joints.idefics3)
GLM4V = Part(towers=(GLM4V_TOWER,), projector=joints.nothing)

# Language models with towers. Their text_config is a row of the family table.
WRAPPERS: dict[str, Wrapper] = {
    "aya_vision": Wrapper(parts=(Part(towers=_any(towers.SIGLIP), projector=joints.aya_vision),)),
    "aria": Wrapper(parts=(Part(towers=_any(towers.IDEFICS3), projector=joints.aria),)),
    "cohere2_vision": Wrapper(
        parts=(Part(towers=_any(towers.SIGLIP), projector=joints.cohere2_vision),)
    ),
    "deepseek_vl": Wrapper(parts=(Part(towers=_any(towers.SIGLIP), projector=joints.two_layers),)),
    "gemma3": Wrapper(parts=(Part(towers=(towers.SIGLIP,), projector=projectors.gemma3),)),
    "shieldgemma2": Wrapper(
        parts=(Part(towers=(towers.SIGLIP,), projector=projectors.gemma3),),
        classes={"ForConditionalGeneration": lm_head, "ForImageClassification": lm_head},
    ),
    **dict.fromkeys(
        ("audioflamingo3", "musicflamingo"),
        Wrapper(
            parts=(
                Part(
                    towers=(towers.AUDIO_FLAMINGO,),
                    projector=joints.audio_flamingo,
                    key="audio_config",
                ),
            )
        ),
    ),
    "hyperclovax_vision_v2": Wrapper(
        parts=(Part(towers=(towers.QWEN2_5_VL,), projector=joints.hyperclovax),)
    ),
    "gemma4": Wrapper(
        parts=(
            Part(towers=(towers.GEMMA4,), projector=projectors.gemma4),
            Part(towers=(towers.GEMMA4_AUDIO,), projector=joints.gemma4_audio, key="audio_config"),
        )
    ),
    **dict.fromkeys(("glm4v", "glm46v", "glmga"), Wrapper(parts=(GLM4V,))),
    "glm4v_moe": Wrapper(parts=(Part(towers=(GLM4V_MOE_TOWER,), projector=joints.nothing),)),
    "glm_ocr": Wrapper(parts=(Part(towers=(GLM_OCR_TOWER,), projector=joints.nothing),)),
    "idefics2": Wrapper(parts=(Part(towers=(towers.IDEFICS2,), projector=joints.idefics2),)),
    "idefics3": Wrapper(parts=(IDEFICS3,)),
    "internvl": Wrapper(parts=(Part(towers=_any(towers.INTERN), projector=joints.internvl),)),
    "kimi_k25": Wrapper(parts=(Part(towers=(towers.MOONVIT,), projector=projectors.kimi_k25),)),
    "lighton_ocr": Wrapper(
        parts=(Part(towers=_any(towers.PIXTRAL), projector=projectors.mistral3),)
    ),
    "llama4": Wrapper(parts=(Part(towers=(towers.LLAMA4,), projector=projectors.llama4),)),
    "llava": Wrapper(parts=(LLAVA,)),
    "llava_next": Wrapper(parts=(LLAVA,), extra=joints.image_newline),
    "llava_next_video": Wrapper(parts=(LLAVA,), extra=joints.image_newline),
    "llava_onevision": Wrapper(
        parts=(Part(towers=_any(towers.SIGLIP), projector=joints.llava),),
        extra=joints.image_newline,
    ),
    "lfm2_vl": Wrapper(parts=(Part(towers=_any(towers.SIGLIP2), projector=joints.lfm2_vl),)),
    "mistral3": Wrapper(parts=(Part(towers=(towers.PIXTRAL,), projector=projectors.mistral3),)),
    "mllama": Wrapper(parts=(Part(towers=(towers.MLLAMA,), projector=projectors.mllama),)),
    "paddleocr_vl": Wrapper(parts=(Part(towers=(towers.PADDLE,), projector=joints.paddleocr_vl),)),
    "paligemma": Wrapper(parts=(Part(towers=_any(towers.SIGLIP), projector=joints.paligemma),)),
    "qianfan_ocr": Wrapper(parts=(Part(towers=(towers.QIANFAN,), projector=joints.internvl),)),
    "qwen2_audio": Wrapper(
        parts=(
            Part(towers=(towers.QWEN2_AUDIO,), projector=joints.qwen2_audio, key="audio_config"),
        )
    ),
    "qwen2_5_omni_thinker": Wrapper(
        parts=(
            Part(towers=(towers.QWEN2_5_OMNI,), projector=projectors.qwen2_5_vl),
            Part(towers=(towers.QWEN2_5_OMNI_AUDIO,), projector=joints.nothing, key="audio_config"),
        )
    ),
    "qwen2_vl": Wrapper(parts=(Part(towers=(towers.QWEN2_VL,), projector=projectors.qwen2_vl),)),
    "qwen2_5_vl": Wrapper(
        parts=(Part(towers=(towers.QWEN2_5_VL,), projector=projectors.qwen2_5_vl),)
    ),
    "qwen3_vl": Wrapper(parts=(Part(towers=(towers.QWEN3_VL,), projector=projectors.qwen3_vl),)),
    "qwen3_vl_moe": Wrapper(
        parts=(Part(towers=(towers.QWEN3_VL_MOE,), projector=projectors.qwen3_vl),)
    ),
    "qwen3_5": Wrapper(parts=(Part(towers=(towers.QWEN3_5,), projector=joints.qwen3_5),)),
    "qwen3_5_moe": Wrapper(parts=(Part(towers=(towers.QWEN3_5_MOE,), projector=joints.qwen3_5),)),
    "smolvlm": Wrapper(parts=(Part(towers=(towers.SMOL,), projector=joints.idefics3),)),
    "video_llava": Wrapper(
        parts=(Part(towers=_any(towers.CLIP), projector=joints.llava, copies=2),)
    ),
    "vipllava": Wrapper(parts=(Part(towers=_any(towers.CLIP), projector=joints.vipllava),)),
    "voxtral": Wrapper(
        parts=(Part(towers=(towers.VOXTRAL,), projector=joints.voxtral, key="audio_config"),)
    ),
    "fuyu": Wrapper(
        parts=(), extra=joints.fuyu, classes={"ForCausalLM": lm_head, "Model": no_head}
    ),
}
