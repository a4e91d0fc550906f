"""What single wrappers want of the models that they nest, beside small sizes of the usual names."""

from typing import Any

_ENCODER = {"hidden_dim": 32, "output_dim": 32, "input_dim": 16}
_TOKENIZER = {"num_filters": 2, "downsampling_ratios": [2, 2], "depths": [1, 1, 1]}
_DIARIZATION = {"hidden_size": 32, "num_hidden_layers": 1, "intermediate_size": 16}
_ALL_HEADS = {"num_attention_heads": 4, "num_key_value_heads": 4}  # its files hold them as one
_MUSE = {"out_hidden_size": 128, "projector_hidden_size": 64}

# Put over the random config, object by object.
OWN: dict[str, dict[str, Any]] = {
    "granite_docling": {
        "vision_config": {
            **{"hidden_size": 48, "intermediate_size": 32, "num_hidden_layers": 2},
            **{"num_attention_heads": 4, "image_size": 64, "deepstack_visual_indexes": [0]},
        }
    },
    "granite_speech": {"encoder_config": _ENCODER},
    "granite_speech_plus": {"encoder_config": _ENCODER},
    "janus": {
        "vision_config": {"projection_dim": 64},
        "vq_config": {
            **{"base_channels": 32, "channel_multiplier": [1, 1], "latent_channels": 32},
            **{"num_embeddings": 64, "projection_dim": 64, "image_token_embed_dim": 64},
        },
    },
    "muse_glimmer": _MUSE,
    "muse_spark": {
        **_MUSE,
        "audio_config": {"hidden_sizes": [16, 16, 16, 32], "depths": [1, 1, 1, 1]},
    },
    "nemo_speechlm": {
        "word_timestamp_config": _ALL_HEADS,
        "audio_config": {
            "asr_config": _ALL_HEADS,
            "diarization_config": {
                "audio_config": {**_DIARIZATION, "num_attention_heads": 4},
                "head_config": {"audio_hidden_size": 32, "hidden_size": 16},
            },
        },
    },
    "qwen2_5_omni": {
        "enable_audio_output": False,
        "thinker_config": {"text_config": {"use_sliding_window": True}},
    },
    "qwen3_omni_moe": {"enable_audio_output": False},
    "kyutai_speech_to_text": {"codec_config": {"upsample_groups": 32}},
    "vibevoice_asr": {
        "acoustic_tokenizer_encoder_config": _TOKENIZER,
        "semantic_tokenizer_encoder_config": _TOKENIZER,
    },
    "apertus1p5": {
        "vision_config": {"base_channels": 32, "channel_multiplier": [1], "num_res_blocks": 1},
        "audio_config": {"hidden_size": 64, "codebook_dim": 64, "num_filters": 4},
    },
    "emu3": {
        "vq_config": {"base_channels": 32, "channel_multiplier": [1, 1], "num_res_blocks": 1},
        "vocabulary_map": {"<|extra_200|>": 1, "<image>": 2},
    },
    "florence2": {
        "vision_config": {
            **{"depths": [1, 1], "patch_size": [7, 3], "patch_stride": [4, 2]},
            **{"patch_padding": [3, 1], "patch_prenorm": [False, True], "embed_dim": [16, 32]},
            **{"num_heads": [2, 4], "num_groups": [2, 4]},
        }
    },
    "granite4_vision": {"deepstack_layer_map": [[0, 0]], "downsample_rate": "1/2"},
    "molmo2": {
        "vision_config": {"num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 16},
        "adapter_config": {
            **{"vision_feature_layer": [1, 0], "hidden_size": 64, "num_attention_heads": 4},
            **{"num_key_value_heads": 4, "head_dim": 16, "intermediate_size": 32},
        },
    },
    "nemotron_h_omni": {"vision_config": {"video_temporal_patch_size": 2}},
}
# Towers of another type, for those of a library that is not installed here.
_TOWER: dict[str, Any] = {
    **{"model_type": "siglip_vision_model", "hidden_size": 64, "num_hidden_layers": 2},
    **{"num_attention_heads": 4, "intermediate_size": 32, "image_size": 28, "patch_size": 14},
}
INSTEAD: dict[str, dict[str, Any]] = {
    "fast_vlm": {"vision_config": _TOWER},
    "perception_lm": {"vision_config": {**_TOWER, "model_args": {"embed_dim": 64}}},
}


def with_own(values: dict[str, Any]) -> dict[str, Any]:
    """The config of a wrapper with what it wants."""
    own = OWN.get(values["model_type"], {})
    if values["model_type"] in ("inkling2", "inkling2_loop"):
        width, rows = (values["text_config"][key] for key in ("hidden_size", "vocab_size"))
        own = {"vision_config": {"text_hidden_size": width}}
        heads = dict.fromkeys(("swa_num_attention_heads", "swa_num_key_value_heads"), 8)
        sizes = {"swa_head_dim": 8, "sliding_window_size": 8, "num_hidden_layers": 6}
        own["text_config"] = {"unpadded_vocab_size": rows - 1, **heads, **sizes}
    if values["model_type"] == "inkling_mm_model":
        width = {"text_hidden_size": values["text_config"]["hidden_size"]}
        own = {"vision_config": {**width, "n_layers": 6, "patch_size": 4}, "audio_config": width}
    return {**_over(values, own), **INSTEAD.get(values["model_type"], {})}


def _over(values: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """`more` over `values`, object by object."""
    both = values.keys() & more.keys()
    nested = {
        key: _over(values[key], more[key])
        for key in both
        if isinstance(values[key], dict) and isinstance(more[key], dict)
    }
    return {**values, **more, **nested}
