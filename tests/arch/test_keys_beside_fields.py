"""Keys that config classes read beside their fields, as `kwargs.pop("block_ff_dim")`: each that
changes a size, a number of layers of some kind or the total is read as the class reads it."""

import json
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from config_specs import read_spec
from headcount.audit import audit_model
from headcount.model.mixers import Attention

SMALL = {"hidden_size": 64, "vocab_size": 100}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
ROUTED = {**SMALL, "num_hidden_layers": 4, "n_routed_experts": 8}
NEMOTRON = {
    **{**SMALL, **HEADS, "model_type": "nemotron_h", "head_dim": 16, "mamba_num_heads": 8},
    **{"mamba_head_dim": 16, "hybrid_override_pattern": "M-*M", "num_hidden_layers": 4},
}
LFM = {**SMALL, **HEADS, "model_type": "lfm2", "num_hidden_layers": 2}
LFM_MOE = {
    **{**SMALL, **HEADS, "model_type": "lfm2_moe", "num_hidden_layers": 4},
    "layer_types": ["conv", "full_attention"] * 2,
}
INKLING = {
    **{**SMALL, "model_type": "inkling_text", "num_hidden_layers": 3, "intermediate_size": 32},
    **{"moe_intermediate_size": 48, "dense_mlp_idx": 1, "n_routed_experts": 8},
}
BAILING = {
    **{**SMALL, "model_type": "bailing_hybrid", "num_hidden_layers": 3, "num_experts": 4},
    "pad_token_id": 0,
    **{"layer_group_size": 2, "num_attention_heads": 4, "first_k_dense_replace": 1},
    **{"intermediate_size": 48, "moe_intermediate_size": 16, "kv_lora_rank": 8},
}
OLD_TEXT = {**SMALL, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}
OLD_IMAGES = {
    **{"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4},
    **{"intermediate_size": 48, "image_size": 32, "patch_size": 8},
}
OLDER_TOWERS = {"text_config_dict": OLD_TEXT, "vision_config_dict": OLD_IMAGES}


class Built(NamedTuple):
    """A config with such keys, most beside the field that they go before, and the parameters of the
    causal or conditional model that transformers 5.24 builds of it on the meta device."""

    config: dict[str, Any]
    parameters: int


BUILT = [
    Built({**LFM, "intermediate_size": 128, "block_ff_dim": 256}, 129_664),
    Built(
        {**LFM, "block_ff_dim": 256, "tie_word_embeddings": True, "tie_embedding": False}, 136_064
    ),
    Built({**LFM_MOE, "tie_word_embeddings": True, "tie_embedding": False}, 24_847_872),
    Built({**LFM_MOE, "tie_word_embeddings": False, "tie_embedding": True}, 24_841_472),
    Built(
        {"model_type": "lfm2_vl", "tie_word_embeddings": True, "tie_embedding": False},
        2_980_629_248,
    ),
    Built({"model_type": "bloom", "n_layer": 2, "n_head": 4, **SMALL, "n_embed": 128}, 409_856),
    Built(
        {
            **{"model_type": "falcon", "num_hidden_layers": 2, "num_attention_heads": 4},
            **{**SMALL, "n_embed": 128},
        },
        357_632,
    ),
    Built({**ROUTED, "model_type": "deepseek_v32", "num_experts": 16}, 290_544_704),
    Built({**ROUTED, "model_type": "glm_moe_dsa", "num_experts": 16}, 245_187_648),
    Built({**ROUTED, "model_type": "glm_moe_dsa", "index_topk_pattern": "FSSS"}, 216_844_096),
    Built(
        {
            **{**ROUTED, "model_type": "glm_moe_dsa"},
            **{"index_topk_freq": 2, "index_skip_topk_offset": 1},
        },
        225_243_200,
    ),
    Built({**ROUTED, "model_type": "axk1", "first_k_dense_replace": 2}, 125_868_224),
    Built(
        {**ROUTED, "model_type": "axk1", "num_hidden_layers": 5, "moe_layer_freq": 2}, 157_331_776
    ),
    Built(
        {
            **{**ROUTED, "model_type": "axk2", "num_hidden_layers": 5, "moe_layer_freq": 2},
            "first_k_dense_replace": 2,
        },
        31_841_216,
    ),
    Built({**NEMOTRON, "n_groups": 8, "mamba_n_groups": 4}, 2_970_992),
    Built({**NEMOTRON, "conv_kernel": 4, "mamba_d_conv": 6}, 3_121_008),
    Built({**NEMOTRON, "mamba_expand": 4}, 3_112_304),
    Built({**NEMOTRON, "mamba_conv_bias": False}, 3_107_952),
    Built({**INKLING, "dense_intermediate_size": 96}, 4_360_707),
    Built(
        {
            **{**SMALL, "model_type": "kimi_linear", "num_hidden_layers": 4, "num_experts": 8},
            **{"first_k_dense_replace": 2, "pad_token_id": 0},
            "linear_attn_config": {
                **{"head_dim": 32, "num_heads": 4, "short_conv_kernel_size": 3},
                **{"full_attn_layers": [2], "kda_layers": [1, 3, 4]},
            },
        },
        12_119_212,
    ),
    Built(
        {
            **{**SMALL, "model_type": "minimax_m3_vl_text", "num_hidden_layers": 4},
            **{"num_local_experts": 8, "moe_layer_freq": [0, 1, 1, 1]},
            "sparse_attention_config": {
                **{"sparse_num_index_heads": 2, "sparse_index_dim": 32},
                "sparse_attention_freq": [0, 0, 1, 1],
            },
        },
        22_769_344,
    ),
    Built(
        {
            **{**SMALL, "model_type": "sarvam_mla", "num_hidden_layers": 3},
            **{"head_dim": 576, "q_head_dim": 192},
        },
        133_835_200,
    ),
    Built(
        {
            **{**ROUTED, "model_type": "deepseek_v4", "num_hash_layers": 1},
            "compress_ratios": [0, 4, 128, 4],
        },
        302_410_013,
    ),
    Built(
        {
            **{**SMALL, "model_type": "gemma4_text", "num_hidden_layers": 6},
            **{"global_head_dim": 64, "num_global_key_value_heads": 2, "attention_k_eq_v": True},
            "vocab_size_per_layer_input": 100,
        },
        13_116_480,
    ),
    Built(
        {
            **{**SMALL, "model_type": "qwen3_next", "num_hidden_layers": 6, "num_experts": 4},
            "full_attention_interval": 2,
        },
        8_779_008,
    ),
    Built(
        {**SMALL, "model_type": "falcon_mamba", "num_hidden_layers": 2, "intermediate_size": 999},
        516_082,
    ),
    Built({"model_type": "t5", "num_layers": 2, "vocab_size": 100, "d_model": 64}, 1_842_688),
    Built(
        {**ROUTED, "model_type": "mimo_v2_flash", "sliding_window": 128, "sliding_window_size": 64},
        18_414_336,
    ),
    Built({**ROUTED, "model_type": "mimo_v2_flash", "sliding_window_size": 64}, 18_414_336),
    Built(
        {
            "model_type": "step3p7",
            "vision_config": {"width": 128, "layers": 3, "heads": 4},
            "text_config": {"num_hidden_layers": 6, "vocab_size": 100, "moe_num_experts": 4},
        },
        1_111_416_638,
    ),
    # Standard names that are fields, too: the class sets its own name after them.
    Built(
        {**ROUTED, "model_type": "qwen3_moe", "num_experts": 4, "num_local_experts": 8}, 4_770_896
    ),
    Built({**BAILING, "n_shared_experts": 1, "num_shared_experts": 2}, 562_128),
    Built({"model_type": "paligemma", "vision_config": {"projection_dim": 96}}, 2_602_990_848),
    # Sizes that few files give, and all that are published with some classes do.
    Built({"model_type": "yoso", "num_hidden_layers": 2, "conv_window": 9}, 56_571_441),
    Built({"model_type": "yolos", "num_hidden_layers": 3, "image_size": [100, 90]}, 22_833_408),
    Built({"model_type": "xlstm", "num_hidden_layers": 2, "num_blocks": 3}, 1_017_094_192),
    Built({"model_type": "prophetnet", "add_cross_attention": False}, 340_916_224),
    # What transformers derives and saves, and reads again.
    Built({**BAILING, "linear_num_heads": 8, "linear_conv_kernel_dim": 5}, 969_176),
    Built({"model_type": "aria", "max_value_projector_patch_to_query_dict": 300}, 18_701_936_512),
    Built(
        {
            **{**SMALL, "model_type": "gemma4_unified_text", "num_hidden_layers": 4},
            "pad_token_id": 0,
            **{"num_kv_shared_layers": 1, "use_double_wide_mlp": True, "intermediate_size": 48},
            "layer_types": ["sliding_attention", "full_attention"] * 2,
        },
        2_153_280,
    ),
    *(
        Built({**OLDER_TOWERS, "model_type": model_type}, parameters)
        for model_type, parameters in (
            *(("clip", 148_657), ("clipseg", 148_657), ("metaclip_2", 148_657)),
            *(("altclip", 791_985), ("chinese_clip", 176_625)),
        )
    ),
    Built(  # what the older key leaves out is the class's, and not that of the other
        {
            **{"model_type": "clip", "text_config": {**OLD_TEXT, "max_position_embeddings": 50}},
            **{"text_config_dict": OLD_TEXT, "vision_config_dict": {}, "vision_config": OLD_IMAGES},
        },
        87_952_129,
    ),
    Built(
        {
            **{"model_type": "clip", "text_config": OLD_TEXT, "text_config_dict": None},
            "vision_config_dict": OLD_IMAGES,
        },
        148_657,
    ),
]


@pytest.mark.parametrize("built", BUILT, ids=lambda one: one.config["model_type"])
def test_a_key_beside_the_fields_is_read_as_the_class_reads_it(
    built: Built, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(built.config))
    audit = audit_model(str(tmp_path / "config.json"))
    assert audit.spec.parameters == built.parameters
    unread = (f for f in audit.findings if f.code == "H418" and "not read" in f.message)
    assert [f.message for f in unread] == []


SIX = {**SMALL, **HEADS, "num_hidden_layers": 6, "intermediate_size": 32}
# How many layers have a window in transformers 5.24 (layer_types), and how many tokens it is.
WINDOWS: list[tuple[dict[str, Any], int, int]] = [
    ({**SIX, "model_type": "cohere2", "sliding_window_pattern": 2}, 3, 4096),
    ({**SIX, "model_type": "gemma3_text", "sliding_window_pattern": 3}, 4, 4096),
    ({**SIX, "model_type": "modernbert-decoder", "global_attn_every_n_layers": 2}, 3, 64),
    ({**ROUTED, "model_type": "mimo_v2_flash", "sliding_window_size": 64}, 3, 65),
]


@pytest.mark.parametrize(("config", "layers", "window"), WINDOWS)
def test_a_key_that_tells_of_windows_is_read(
    config: dict[str, Any], layers: int, window: int
) -> None:
    mixers = [layer.mixers[0] for layer in read_spec(config, "config.json").layers]
    windows = [mixer.window for mixer in mixers if isinstance(mixer, Attention) and mixer.window]
    assert windows == [window] * layers


def test_a_width_that_the_wrapper_writes_over_that_of_its_text() -> None:
    """BlipForConditionalGeneration of transformers 5.24: `key` of its cross-attention is
    [768, 1024]."""
    text = {"encoder_hidden_size": 768, "num_hidden_layers": 2}
    vision = {"hidden_size": 1024, "num_attention_heads": 16}
    config = {"model_type": "blip", "text_config": text, "vision_config": vision}
    crossing = read_spec(config, "config.json").layers[0].mixers[1]
    assert crossing.parameters().k == 768 * 1024 + 768


# What says nothing of a language model's sizes: where it is loaded from, angles, labels and ids,
# vision towers on their own, outputs of backbones, layers that only draft, and time steps.
SAYS_NO_SIZE = frozenset(
    {
        *("cache_dir", "code_revision", "local_files_only", "revision", "token"),
        *("trust_remote_code", "dtype", "torch_dtype", "model_type", "initializer_range"),
        *("rope_scaling", "rope_theta", "rope_local_base_freq", "rotary_dim", "rotary_emb_base"),
        *("rotary_pct", "global_rope_theta", "local_rope_theta", "partial_rotary_factor"),
        *("partial_rotary_factors", "swa_rope_theta", "qk_rope_head_dim", "no_rope_layer_interval"),
        *("num_labels", "pad_token_id", "decoder", "is_causal", "frame_rate", "n_recurrent_loops"),
        *("out_features", "out_indices", "segmentation_indices", "backbone", "backbone_kwargs"),
        *("use_timm_backbone", "num_channels", "output_stride", "mask_loss_coefficient"),
        *("mtp_config", "mtp_hybrid_override_pattern", "num_nextn_predict_layers"),
        *("mamba_chunk_size", "mamba_dt_init_floor", "mamba_dt_limit", "mamba_dt_max"),
        *("mamba_dt_min", "use_falcon_mambapy", "ls_init_value", "router_scale", "capacity_factor"),
        *("image_size", "qkv_bias", "pooler_hidden_size"),  # the last must be the hidden size
    }
)
# Read, with tests of their own; and of models whose total is said not to be known.
ELSEWHERE = frozenset(
    {
        *("compress_rate_csa", "compress_rate_hca", "loop_config", "moe_layers_enum"),
        *("attention_other_setting", "use_dsa", "use_sliding_window", "swa_{name}"),
        *("swa_qk_rope_head_dim", "attention_windows", "tie_word_embeddings", "per_layer_config"),
    }
)
UNCOUNTED = frozenset(
    {
        *("adapter_output_size", "whisper_adapter_in_dim", "whisper_adapter_out_dim"),
        *("whisper_config", "embed_dim", "num_heads", "use_bias", "pyramid_num_routed"),  # dots3
        *("moe_shared_expert_intermediate_size", "image_default_input_size", "image_num_pos"),
        *("image_patch_size", "vit_layers", "vit_config", "language_config"),
        *("image_config_dict", "image_codebook_config_dict", "multimodal_config_dict"),  # FLAVA
    }
)
_READ = re.compile(r'kwargs\.(?:pop|get)\(\s*f?"([^"]+)"')


def _keys_of(value: Any) -> Iterator[str]:
    for key, inner in value.items() if isinstance(value, dict) else ():
        yield key
        yield from _keys_of(inner)


@pytest.mark.slow
def test_every_key_beside_the_fields_is_looked_at() -> None:
    found = find_spec("transformers")
    assert found is not None and found.submodule_search_locations
    models = Path(found.submodule_search_locations[0]) / "models"
    texts = (path.read_text() for path in models.glob("*/configuration_*.py"))
    beside = {key for text in texts for key in _READ.findall(text)}
    held = {key for config, *_ in (*BUILT, *WINDOWS) for key in _keys_of(config)}
    assert beside - held - SAYS_NO_SIZE - ELSEWHERE - UNCOUNTED == set()
    assert "block_ff_dim" in beside
