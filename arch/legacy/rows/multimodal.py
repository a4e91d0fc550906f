"""Models whose language model is nested in the config, and read with the row of its own type."""

from dataclasses import replace

from ... import tying
from ...tensors import names
from ..row import Family
from .patterns import WRAPPER

UNTIED = replace(WRAPPER, tied=tying.never)

ROWS: dict[str, Family] = {
    **dict.fromkeys(
        (
            *("apertus1p5", "aria", "audioflamingo3", "aya_vision", "blip", "blip-2"),
            *("cohere2_vision", "cohere_compass", "cosmos3_edge", "cosmos3_omni", "deepseek_ocr2"),
            *("deepseek_vl", "deepseek_vl_hybrid", "diffusion_gemma", "emu3", "ernie4_5_vl_moe"),
            *("exaone4_5", "fast_vlm", "florence2", "fuyu", "gemma4_unified"),
            *("glm46v", "glm4v", "glm4v_moe", "glm_ocr", "glmga", "got_ocr2"),
            *("granite_docling", "granite_speech", "granite_speech_plus"),
            *("hunyuan_vl", "hyperclovax_vision_v2", "idefics2", "idefics3", "instructblip"),
            *("instructblipvideo", "internvl", "janus", "kosmos-2", "kosmos-2.5", "lighton_ocr"),
            *(
                "llava",
                "llava_next",
                "llava_next_video",
                "llava_onevision",
                "modernvbert",
                "molmo2",
            ),
            *("moss_transcribe_diarize", "muse_glimmer", "muse_spark", "musicflamingo"),
            *("omniasr", "ovis2", "paddleocr_vl", "paligemma", "perception_lm", "pix2struct"),
            *("pp_chart2table", "pp_formulanet", "qwen2_5_omni_thinker"),
            *("qwen2_audio", "qwen3_asr", "qwen3_omni_moe_thinker", "shieldgemma2", "smolvlm"),
            *("step3p7", "ultravbert", "vibevoice_asr", "video_llama_3", "video_llava", "vipllava"),
        ),
        WRAPPER,
    ),
    **dict.fromkeys(
        (
            *("fast_vlm", "glm4v", "glm4v_moe", "glm_ocr", "hunyuan_vl", "llava"),
            *("llava_next_video", "llava_onevision", "minimax_m3_vl", "paddleocr_vl"),
            *("shieldgemma2", "video_llama_3"),
        ),
        replace(WRAPPER, tied=tying.either_word),
    ),
    **dict.fromkeys(("qwen2_5_omni", "qwen3_omni_moe"), replace(WRAPPER, text="thinker_config")),
    **dict.fromkeys(("glmasr", "voxtral_realtime"), replace(WRAPPER, fills_text=True)),
    "voxtral": replace(UNTIED, fills_text=True),
    **dict.fromkeys(
        (
            *("audioflamingo3", "musicflamingo", "omniasr", "pp_formulanet", "qwen2_audio"),
            "vibevoice_asr",
        ),
        UNTIED,
    ),
    **dict.fromkeys(
        ("blip-2", "instructblip", "instructblipvideo", "kosmos-2.5"),
        replace(WRAPPER, tied=tying.text_word),
    ),
    "kosmos-2": replace(WRAPPER, tied=tying.either_word),
    "cosmos3_edge": UNTIED,
    "cosmos3_omni": replace(WRAPPER, names=names.COSMOS3, stacks={"blocks": "vision"}),
    "fun_asr_nano": replace(WRAPPER, stacks={"multi_modal_projector.layers": "audio"}),
    "granite4_vision": replace(
        WRAPPER,
        stacks=dict.fromkeys(("layerwise_projectors", "spatial_projectors"), "vision"),
    ),
    "nemo_speechlm": replace(WRAPPER, stacks={"ctc_timestamp.decoder.transformer.layers": "audio"}),
    # transformers writes the language model so; older files have no `encoder` there.
    "qianfan_ocr": replace(WRAPPER, stacks={"language_model.model.encoder.layers": "decoder"}),
    **dict.fromkeys(("musicgen", "musicgen_melody"), replace(WRAPPER, text="decoder")),
    "pi0": replace(WRAPPER, text="vlm_config", tied=tying.always),  # no head computes logits
}
