"""Decoders of attention alone."""

from dataclasses import replace

from ... import tying
from ...attention import layer_kinds as kinds
from ...attention import shape
from ...decoders.cohere import cohere2_moe
from ...decoders.deepseek import LONGCAT_TENSORS, SARVAM_TENSORS
from ...decoders.exaone import EXAONE_TENSORS, exaone4
from ...decoders.gpt_oss import BEAM_TENSORS, FLINT_TENSORS, flint
from ...decoders.hunyuan import HUNYUAN_TENSORS
from ...decoders.olmo import MOLMO2_TENSORS
from ...decoders.phi import PERSIMMON_TENSORS, QKV_PROJ_TENSORS
from ...tensors import names
from .. import conditioned, own_parameters, uneven
from ..row import Family
from .patterns import (
    ALL_BIASED,
    ALL_HEADS_FIXED,
    GEMMA4,
    GLM,
    GPT2,
    LLAMA,
    LLAMA_NORMED,
    MISTRAL,
    MLA,
    NO_BIAS,
    OLMO2,
    QWEN2,
    USE_BIAS,
)

GATED = replace(LLAMA_NORMED, names=names.GATE_PROJ, other=own_parameters.output_gate)
SINKS = replace(LLAMA, kinds=kinds.full_first(4), other=shape.one_per_head)
STEP = replace(
    LLAMA_NORMED,
    names=names.G_PROJ,
    per_layer_key="per_layer_config",
    kinds="full",
    defaults={"gating": True},  # a constant of the class
    per_layer=uneven.step_values,
    other=uneven.gate_by_config,
)
MUSE = replace(LLAMA, names=names.MUSE, kinds=kinds.full_last(4), other=own_parameters.output_gate)
DOTS1 = replace(LLAMA_NORMED, kinds=kinds.above_max_window_layers)

MOSHI = replace(MISTRAL, names=names.MOSHI, tied=tying.never)

ASSISTANT = Family(build=uneven.assistant)

ROWS: dict[str, Family] = {
    # One kind of layer
    **dict.fromkeys(
        (
            *("arcee", "aria_text", "emu3_text_model"),
            *("granitemoeshared", "granite4_vision_text", "hyperclovax", "iquestcoder"),
            *("jais2", "nanochat", "granite_docling_text", "csm_depth_decoder_model"),
            "higgs_audio_v2",
        ),
        LLAMA,
    ),
    **dict.fromkeys(
        ("apertus1p5_text", "hy_v3", "laguna_text"),
        LLAMA_NORMED,
    ),
    "cosmos3_edge_text": replace(LLAMA, names=names.COSMOS3),
    "csm": replace(LLAMA, tied=tying.never),
    "evolla": replace(
        LLAMA,
        names=names.EVOLLA,
        stacks={"protein_encoder.model.encoder.layer": "encoder"},
        tied=tying.never,
    ),
    "exaone": replace(LLAMA, names=EXAONE_TENSORS),
    **dict.fromkeys(("glm4v_moe_text", "glm_image_text", "helium", "solar_open"), GLM),
    "bitnet": replace(LLAMA, names=names.BITNET, norm="output"),
    "chameleon": replace(LLAMA, norm="heads_bias", fixed_head_dim=True),
    "codegen": replace(ALL_HEADS_FIXED, names=names.CODEGEN),
    "ctrl": replace(ALL_BIASED, names=names.CTRL),
    "deepseek_ocr2_text": replace(LLAMA, fixed_head_dim=True),
    "diffllama": replace(LLAMA, names=names.DIFFLLAMA, other=own_parameters.vectors_of_head_dim(4)),
    "doge": replace(LLAMA_NORMED, names=names.DOGE, kinds=kinds.windowed, build=uneven.doge),
    "ernie4_5_vl_moe_text": USE_BIAS,
    "flex_olmo": OLMO2,
    "glm4v_text": Family(qkv_bias=True),
    "glm_ocr_text": NO_BIAS,
    **dict.fromkeys(("gpt-sw3", "imagegpt"), GPT2),
    "gpt_neox_japanese": replace(
        ALL_HEADS_FIXED,
        names=names.GPT_NEOX_JAPANESE,
        per_layer=uneven.last_is_biased,
        other=uneven.biased,
    ),
    "hunyuan_vl_text": replace(LLAMA_NORMED, names=HUNYUAN_TENSORS),
    "jetmoe": Family(
        names=names.JETMOE,
        build=uneven.mixture_of_attention,
    ),
    "openai-gpt": replace(GPT2, cached=False, stack="decoder", cross=False),
    "paddleocr_vl_text": USE_BIAS,
    "persimmon": replace(
        ALL_BIASED, names=PERSIMMON_TENSORS, norm="head_bias", norm_if="qk_layernorm"
    ),
    "sarvam_moe": replace(GLM, names=SARVAM_TENSORS, norm="head", norm_if="use_qk_norm"),
    "xglm": replace(ALL_BIASED, names=names.BART, cross="add_cross_attention"),
    # Layers of two kinds, or windows
    "afmoe": replace(GATED, kinds=kinds.every(4, "global_attn_every_n_layers")),
    "beam": replace(
        GATED,
        names=BEAM_TENSORS,
        kinds=kinds.every(6, last_full=True),
        other=own_parameters.output_gate_and_head_bias,
    ),
    "cohere2_moe": replace(LLAMA, kinds=cohere2_moe),
    "cohere_compass_text": replace(LLAMA, kinds="full"),
    "cwm": replace(NO_BIAS, kinds=kinds.full_first(4)),
    "diffusion_gemma_text": replace(
        GEMMA4, defaults={"attention_k_eq_v": True, "global_head_dim": 512}
    ),
    "dots1": DOTS1,
    "exaone_moe": replace(NO_BIAS, norm="head", kinds=exaone4),
    "flint": replace(LLAMA_NORMED, names=FLINT_TENSORS, kinds=flint, other=shape.one_per_head),
    "gemma4_assistant": ASSISTANT,
    "gemma4_unified_assistant": ASSISTANT,
    "gemma4_unified_text": GEMMA4,
    "granite_swa": SINKS,
    "granitemoe_swa": SINKS,
    "kolibri1": replace(NO_BIAS, norm="head", kinds=kinds.every(5)),
    "laguna": replace(
        LLAMA_NORMED,
        names=names.G_PROJ,
        kinds="full",
        per_layer=uneven.heads_per_layer,
        other=uneven.gate_by_config,
    ),
    "mellum": replace(LLAMA_NORMED, kinds="full"),
    "mimo_v2_flash": replace(
        GLM,
        names=names.MIMO,
        kinds=kinds.mimo,
        v_head_dim="v_head_dim",
        window=uneven.mimo_window,
        per_layer=uneven.mimo_values,
        other=uneven.sinks_by_layer,
    ),
    "ministral": MISTRAL,
    "modernbert-decoder": replace(
        LLAMA,
        names=names.MODERNBERT_DECODER,
        fixed_head_dim=True,
        key_value_heads=shape.as_query_heads,
        kinds=kinds.full_first(3, "global_attn_every_n_layers"),
        window=uneven.half_of_local_attention,
    ),
    "molmo2_text": replace(GLM, names=MOLMO2_TENSORS, norm=uneven.molmo_norm),
    "kyutai_speech_to_text": replace(
        MOSHI, stacks={f"codec_model.{p}coder_transformer.layers": "audio" for p in ("en", "de")}
    ),
    "moshi": MOSHI,
    "muse_glimmer_text": MUSE,
    "muse_spark_text": MUSE,
    "phi4_multimodal": replace(MISTRAL, names=QKV_PROJ_TENSORS),
    **dict.fromkeys(("qwen2_5_omni_text", "qwen2_5_omni_talker"), QWEN2),
    "qwen3_omni_moe_text": replace(LLAMA_NORMED, kinds=kinds.windowed),
    "step3p5": STEP,
    "vaultgemma": replace(LLAMA, kinds=kinds.every(2)),
    "voxtral_realtime_text": MISTRAL,
    # Latent attention
    **dict.fromkeys(("axk1", "glm4_moe_lite", "minicpm3", "sarvam_mla", "youtu", "mistral4"), MLA),
    "longcat_flash": replace(MLA, names=LONGCAT_TENSORS, build=uneven.two_per_block),
    # An encoder beside it
    "blip_text_model": replace(
        ALL_BIASED,
        names=names.BERT,
        cached="is_decoder",
        cross="is_decoder",
        cross_width="encoder_hidden_size",
    ),
    "kosmos_2_text_model": replace(
        ALL_BIASED, names=names.BART, norm="output_bias", cross="add_cross_attention"
    ),
    "kosmos_2_5_text_model": replace(ALL_BIASED, names=names.BART),
    "biogpt": replace(ALL_BIASED, names=names.BART, cross="add_cross_attention"),
    "git": replace(ALL_BIASED, names=names.BERT),
    "blt": replace(NO_BIAS, names=names.UNKNOWN, fixed_head_dim=True, build=conditioned.blt),
    "idefics": replace(ALL_HEADS_FIXED, names=names.UNKNOWN, build=conditioned.idefics),
    "musicgen_melody_decoder": replace(
        ALL_HEADS_FIXED, names=names.BART, build=conditioned.musicgen_melody
    ),
    "musicgen_decoder": replace(
        NO_BIAS,
        names=names.BART,
        fixed_head_dim=True,
        key_value_heads=shape.as_query_heads,
        cross=True,
    ),
    "trocr": replace(
        ALL_BIASED,
        names=names.BART,
        cross=True,
        cross_width="cross_attention_hidden_size",
    ),
}
