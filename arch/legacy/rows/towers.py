"""Encoders of images, text and sound that stand alone, or in a file of their own beside a model."""

from dataclasses import replace

from ...tensors import names
from .. import encoder_names, odd, odd_encoders
from .. import own_parameters as extras
from ..row import Family
from .patterns import ALL_BIASED, LLAMA, LLAMA_NORMED, NO_BIAS, VIT

BIASED = replace(ALL_BIASED, names=names.BART, cached=False)
BERT_LIKE = replace(ALL_BIASED, names=names.BERT, cached=False)
TOWERS = replace(ALL_BIASED, names=names.BART, build=odd.two_towers)
WHISPER_LIKE = replace(BIASED, k_bias=False)

ROWS: dict[str, Family] = {
    # Two towers, and the halves of such models
    **dict.fromkeys(("metaclip_2", "owlvit", "owlv2"), TOWERS),
    "altclip": replace(TOWERS, names=encoder_names.CHINESE_CLIP),
    **dict.fromkeys(
        (
            *("chinese_clip_vision_model", "clip_text_model", "clip_vision_model"),
            *("clipseg_text_model", "clipseg_vision_model", "altclip_vision_model"),
            *("git_vision_model", "groupvit_text_model", "idefics2_vision", "idefics3_vision"),
            *("kosmos_2_vision_model", "metaclip_2_text_model"),
            *("metaclip_2_vision_model", "mlcd_vision_model", "owlv2_text_model"),
            *("owlv2_vision_model", "owlvit_text_model", "owlvit_vision_model"),
            *("paddleocr_vl_vision", "siglip2_text_model", "siglip2_vision_model"),
            *("siglip_text_model", "siglip_vision_model"),
        ),
        BIASED,
    ),
    **dict.fromkeys(
        (
            *("align_text_model", "altclip_text_model", "bridgetower_text_model", "bros"),
            *("chinese_clip_text_model", "clap_text_model"),
        ),
        BERT_LIKE,
    ),
    # Images
    **dict.fromkeys(
        ("flava_image_model", "flava_multimodal_model", "flava_text_model"),
        replace(VIT, fixed_head_dim=True),
    ),
    "radio": replace(VIT, names=encoder_names.RADIO, fixed_head_dim=True),
    "aimv2_vision_model": replace(
        BIASED, names=encoder_names.WAV2VEC2, qkv_bias="qkv_bias", o_bias="qkv_bias"
    ),
    "dinov3_vit": replace(BIASED, names=encoder_names.DINOV3, build=odd_encoders.dinov3),
    "llama4_vision_model": replace(BIASED, names=names.LLAMA),
    "pixtral": replace(BIASED, names=encoder_names.DINOV3, qkv_bias=False, o_bias=False),
    "tipsv2_text_model": replace(BIASED, names=encoder_names.TIPS),
    # Sound
    **dict.fromkeys(("omniasr_audio", "sew"), replace(BIASED, names=encoder_names.WAV2VEC2)),
    "sew-d": replace(BERT_LIKE, names=encoder_names.DEBERTA_V2, other=extras.deberta_v2),
    **dict.fromkeys(
        (
            *("audioflamingo3_encoder", "moss_transcribe_diarize_audio"),
            *("qwen2_5_omni_audio_encoder", "qwen2_audio_encoder"),
        ),
        WHISPER_LIKE,
    ),
    "glmasr_encoder": Family(qkv_bias=True, k_bias=False, o_bias=True, cached=False),
    "dia_encoder": replace(NO_BIAS, names=encoder_names.DIA, cached=False),
    "lasr_encoder": replace(LLAMA, cached=False),
    "pe_audio_encoder": replace(LLAMA_NORMED, cached=False),
}
