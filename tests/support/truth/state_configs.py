"""Small random configs of the types whose layers keep more than keys and values."""

import random
from copy import deepcopy
from typing import Any

Knobs = dict[str, tuple[Any, ...]]
FLAG = (True, False)

_BASE: Knobs = {"vocab_size": (64,), "pad_token_id": (0,), "tie_word_embeddings": FLAG}
_COMMON: Knobs = {
    **_BASE,
    "hidden_size": (32, 48),
    "intermediate_size": (40,),
    "num_hidden_layers": (4, 5, 6),
    "num_attention_heads": (4, 8),
    "num_key_value_heads": (1, 2, 4),
    "max_position_embeddings": (64,),
    "attention_bias": FLAG,
}
_WIDE: Knobs = {"head_dim": (8, 12, None)}
_MHA = {**_COMMON, "num_attention_heads": (4,), "num_key_value_heads": (4,)}
_MLA: Knobs = {
    **_MHA,
    "q_lora_rank": (16, 12),
    "kv_lora_rank": (8, 20),
    "qk_rope_head_dim": (4, 8),
    "qk_nope_head_dim": (8, 6),
    "v_head_dim": (12, 10),
}
_EXPERTS: Knobs = {
    "moe_intermediate_size": (16,),
    "n_routed_experts": (4,),
    "num_experts": (4,),
    "num_local_experts": (4,),
    "num_experts_per_tok": (2,),
    "n_shared_experts": (1,),
    "n_group": (1,),
    "topk_group": (1,),
    "shared_expert_intermediate_size": (16,),
}
_INDEX: Knobs = {"index_head_dim": (8, 16), "index_n_heads": (2, 3), "index_topk": (4,)}
_DELTA: Knobs = {
    "linear_num_key_heads": (2, 4),
    "linear_num_value_heads": (4,),
    "linear_key_head_dim": (8, 6),
    "linear_value_head_dim": (12, 8),
    "linear_conv_kernel_dim": (3, 4),
}
_KIMI: Knobs = {
    "linear_num_heads": (3, 4),
    "linear_head_dim": (8, 6),
    "linear_conv_kernel_dim": (3, 4),
}
_PURE: Knobs = {
    **_BASE,
    "hidden_size": (32, 48),
    "num_hidden_layers": (2, 3),
    "state_size": (6, 8),
    "conv_kernel": (3, 4),
    "use_bias": FLAG,
    "use_conv_bias": FLAG,
}
_BAMBA: Knobs = {
    "mamba_n_heads": (8, 4),
    "mamba_n_groups": (1, 2),
    "mamba_d_state": (6, 8),
    "mamba_d_conv": (3, 4),
    "mamba_expand": (2,),
    "mamba_chunk_size": (8,),
    "mamba_conv_bias": FLAG,
    "mamba_proj_bias": FLAG,
}
_SSM: Knobs = {
    "mamba_d_state": (6, 8),
    "mamba_d_conv": (3, 4),
    "mamba_expand": (2, 3),
    "mamba_conv_bias": FLAG,
    "mamba_proj_bias": FLAG,
    "mamba_dt_rank": (None, 5),
    "use_mamba_kernels": (False,),
}
_INKLING: Knobs = {
    **_COMMON,
    **_EXPERTS,
    "head_dim": (8, 12),
    "swa_num_attention_heads": (4, 8),
    "swa_num_key_value_heads": (2, 4),
    "swa_head_dim": (8, 10),
    "sliding_window_size": (6, 9),
    "d_rel": (3, 4),
    "rel_extent": (8,),
    "conv_kernel_size": (3, 4),
}
_INKLING2 = {**_INKLING, "unpadded_vocab_size": (60,)}  # of 64
_LAYERS = ("num_hidden_layers",)
_KINDS = ["linear_attention", "full_attention"]


def _but(knobs: Knobs, *names: str, **more: tuple[Any, ...]) -> Knobs:
    return {k: v for k, v in {**knobs, **more}.items() if k not in names}


KNOBS: dict[str, Knobs] = {
    "mamba": {**_PURE, "expand": (2, 3), "time_step_rank": (None, "auto", 5)},
    "falcon_mamba": {**_PURE, "expand": (2,), "intermediate_size": (None, 40)},
    "mamba2": {
        **_PURE,
        **{"hidden_size": (32,), "expand": (2,), "n_groups": (1, 2), "chunk_size": (8,)},
        **{"num_heads": (8,), "head_dim": (8,)},
    },
    "jamba": {
        **_COMMON,
        **_SSM,
        **_WIDE,
        **{"attn_layer_period": (2, 3), "attn_layer_offset": (0, 1), "num_experts": (2,)},
    },
    "bamba": {**_COMMON, **_BAMBA, **_WIDE, "attn_layer_indices": ([1, 3], [0])},
    "granitemoehybrid": _but(
        {**_COMMON, **_BAMBA, **_EXPERTS},
        num_hidden_layers=(4,),
        layer_types=(["mamba", "attention"] * 2, ["attention", "mamba"] * 2),
    ),
    "falcon_h1": _but(
        {**_COMMON, **_BAMBA, **_WIDE},
        mamba_d_ssm=(None, 48),
        mamba_rms_norm=FLAG,
        projectors_bias=FLAG,
        num_key_value_heads=(1, 2),
    ),
    "nemotron_h": _but(
        {**_COMMON, **_WIDE},
        "intermediate_size",
        "num_hidden_layers",
        hybrid_override_pattern=("M*E-M", "*M-", "MM*"),
        head_dim=(8, 12),
        ssm_state_size=(6, 8),
        mamba_num_heads=(4,),
        mamba_head_dim=(8, 6),
        conv_kernel=(3, 4),
        n_groups=(1, 2),
        chunk_size=(8,),
        use_bias=FLAG,
        use_conv_bias=FLAG,
        n_routed_experts=(4,),
        num_experts_per_tok=(2,),
        moe_intermediate_size=(16,),
        moe_shared_expert_intermediate_size=(16,),
        use_mamba_kernels=(False,),
    ),
    "zamba": _but(
        {**_MHA, **_SSM},
        attn_layer_period=(2,),
        attn_layer_offset=(0, 1),
        n_mamba_heads=(1, 2),
    ),
    "zamba2": _but(
        {**_MHA, **_BASE},
        num_hidden_layers=(6,),
        mamba_d_state=(6, 8),
        mamba_d_conv=(3, 4),
        layers_block_type=(["mamba", "hybrid"] * 3,),
        mamba_ngroups=(1, 2),
        n_mamba_heads=(8,),
        chunk_size=(8,),
        num_mem_blocks=(1, 2),
        use_shared_attention_adapter=FLAG,
        adapter_rank=(4,),
        mamba_expand=(2,),
        add_bias_linear=FLAG,
        use_mamba_kernels=(False,),
    ),
    "qwen3_next": {**_COMMON, **_DELTA, **_EXPERTS, "head_dim": (8, 12)},
    "qwen3_5_text": {
        **{**_COMMON, **_DELTA, "head_dim": (8, 12), "num_hidden_layers": (4,)},
        **{"layer_types": (None, _KINDS * 2), "full_attention_interval": (None, 2)},
    },
    "qwen3_5_moe_text": {**_COMMON, **_DELTA, **_EXPERTS, "head_dim": (8, 12)},
    "lara_mini": {**_COMMON, **_DELTA, **_EXPERTS, "head_dim": (8, 12), "sliding_window": (6, 30)},
    "olmo_hybrid": {
        **_COMMON,
        **_DELTA,
        **{"linear_num_key_heads": (None, 4), "linear_num_value_heads": (None, 4)},
        **{"linear_key_head_dim": (None, 8), "num_attention_heads": (4,)},
    },
    "qwen4_exp_text": {
        **{**_COMMON, **_DELTA, **_EXPERTS, "head_dim": (12,), "indexer_n_heads": (2, 3)},
        **{"indexer_kv_heads": (1,), "indexer_head_dim": (12, 16), "indexer_budget": (8,)},
        **{"indexer_compress_ratio": (4,), "hc_count": (2,), "hc_lowrank": (4,)},
        **{"ple_layer_ids": (None, [2]), "ple_embed_dim": (16,), "ngram_size": (3,)},
        **{"ple_conv_kernel_size": (3, 4), "heads_per_ngram": (2,), "eos_token_id": (1,)},
        **{"ngram_vocab_size_base": (50,), "make_ngram_vocab_size_divisible_by": (8,)},
        "split_ngram_parts": (2,),
    },
    "kimi_linear": {
        **{**_MLA, **_KIMI, **_EXPERTS, "q_lora_rank": (None, 16), "num_hidden_layers": (5, 6)},
        "linear_attn_config": (
            None,
            {"head_dim": 6, "num_heads": 2, "short_conv_kernel_size": 4},
        ),
    },
    "bailing_hybrid": {
        **{**_MLA, **_EXPERTS, "head_dim": (8, 12), "q_lora_rank": (None, 16)},
        **{"short_conv_kernel_size": (3, 4), "layer_group_size": (2, 3)},
    },
    "glm5_next_text": {
        **{**_MLA, **_KIMI, **_EXPERTS, **_INDEX, "qk_rope_head_dim": (0,), "index_kpool": (2, 4)},
        **{"index_topk_freq": (None, 2)},
    },
    "minimax": {**_COMMON, **_EXPERTS, **_WIDE},
    "recurrent_gemma": {
        **_COMMON,
        **{"lru_width": (None, 24), "attention_window_size": (6, 30), "conv1d_width": (3, 4)},
        "num_attention_heads": (4,),
    },
    "lfm2": {**_COMMON, "conv_L_cache": (3, 4), "conv_bias": FLAG, "full_attn_idxs": (None, [1])},
    "lfm2_moe": {
        **{**_COMMON, **_EXPERTS, "conv_L_cache": (3,), "conv_bias": FLAG},
        **{"num_hidden_layers": (4,), "layer_types": (["conv", "full_attention"] * 2,)},
    },
    "lfm3": {
        **{**_COMMON, "conv_L_cache": (3, 4), "head_dim": (12,), "sliding_window": (6, 30)},
        "use_attention_gate": FLAG,
    },
    "zaya": {
        **{**_COMMON, **_EXPERTS, "head_dim": (8, 12), "num_experts_per_tok": (1,)},
        **{"router_hidden_size": (16,), "cca_time0": (2, 3), "cca_time1": (2, 3)},
        **{"num_key_value_heads": (2, 4)},
    },
    "inkling_text": {**_INKLING, "local_layer_ids": (None, [0, 2])},
    "inkling2_text": _but(
        _INKLING2, "intermediate_size", "num_hidden_layers", num_hidden_layers=(6, 7)
    ),
    "inkling2_loop_text": _but(
        _INKLING2,
        "intermediate_size",
        n_layers_per_attn_res_block=(1,),
        loop_layer_index_start=(1,),
        loop_layer_index_end=(3,),
        loop_num_passes=(1, 2, 3),
    ),
    "deepseek_v32": {**_MLA, **_INDEX, **_EXPERTS},
    "glm_moe_dsa": {
        **{**_MLA, **_INDEX, **_EXPERTS, "num_hidden_layers": (4,)},
        **{"index_topk_freq": (None, 2), "index_topk_pattern": (None, "FSFS")},
    },
    "axk2": {**_MLA, **_INDEX, **_EXPERTS},
    "hy_v4": {**_MLA, **_INDEX, **_EXPERTS},
    "hy_v4_vl_text": {
        **{**_MLA, **_INDEX, **_EXPERTS, "qk_rope_head_dim": (8,)},
        "rope_parameters": (
            {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]},
        ),
    },
    "mistral_large4_text": {
        **{**_MLA, **_INDEX, **_EXPERTS, "num_hidden_layers": (6,), "qk_rope_head_dim": (8,)},
        **{"kv_source_layers": (None, [0, 1, 0, 3, 3, 1]), "index_topk_freq": (None, 2)},
        "no_rope_layers": (None, [0, 1, 1, 0, 1, 1]),
    },
    "dots3_note_text": {
        **{**_MLA, **_INDEX, **_EXPERTS, "sliding_window": (6, 30), "head_dim": (12,)},
        **{"swa_num_attention_heads": (2,), "swa_num_key_value_heads": (2,)},
        **{"swa_q_lora_rank": (12,), "swa_kv_lora_rank": (16, 24), "swa_head_dim": (16,)},
        **{"swa_qk_nope_head_dim": (10, 12), "swa_v_head_dim": (8,), "use_dsa": (None, False)},
    },
    "minimax_m3_vl_text": {
        **{**_COMMON, **_EXPERTS, **_INDEX, "head_dim": (12,), "rotary_dim": (4,)},
        **{"num_key_value_heads": (2,), "index_n_heads": (2,)},
        **{"num_hidden_layers": (4,)},
        "sparse_attention_config": (
            None,
            {"sparse_attention_freq": [0, 1, 0, 1], "sparse_index_dim": 12},
        ),
    },
    "deepseek_v4": {
        **{**_COMMON, **_INDEX, **_EXPERTS, "head_dim": (16, 24), "num_key_value_heads": (1,)},
        **{"q_lora_rank": (16,), "sliding_window": (6, 30), "o_groups": (2,), "o_lora_rank": (8,)},
        **{"partial_rotary_factor": (0.25,), "num_hidden_layers": (4,)},
        **{"compress_ratios": (None, [0, 128, 4, 4]), "compress_rate_hca": (8, 16)},
        "compress_rate_csa": (None, 8),
    },
    "rwkv": {
        **_BASE,
        "hidden_size": (32, 48),
        "num_hidden_layers": (2, 3),
        "context_length": (64,),
    },
    "xlstm": {
        **{**_BASE, "hidden_size": (128,), "num_hidden_layers": (2,), "num_heads": (2, 4)},
        **{"chunk_size": (8,), "use_bias": FLAG, "v_dim_factor": (1.0, 0.5)},
        "embedding_dim": (128,),
    },
    "xlnet": {**_BASE, "d_model": (32, 48), "n_layer": (2,), "n_head": (4,), "d_inner": (40,)}
    | {"mem_len": (9, None)},
    "reformer": {
        **{**_BASE, "hidden_size": (32,), "num_attention_heads": (2,), "num_buckets": (4,)},
        **{"attention_head_size": (8, 6), "feed_forward_size": (40,), "is_decoder": (True,)},
        **{"attn_layers": (["local", "lsh"] * 2, ["lsh", "lsh"]), "axial_pos_embds": (False,)},
        **{"axial_pos_shape": ([8, 8],), "axial_pos_embds_dim": ([16, 16],), "hash_seed": (1,)},
        **{"max_position_embeddings": (64,), "lsh_attn_chunk_length": (4,)},
        **{"local_attn_chunk_length": (4,), "num_hashes": (1, 2)},
    },
    "cpmant": {
        **{**_BASE, "hidden_size": (32,), "num_attention_heads": (4,), "dim_head": (8, 6)},
        **{"dim_ff": (40,), "num_hidden_layers": (2,), "prompt_length": (5, 0)},
        **{"prompt_types": (32,), "segment_types": (32,)},
    },
    "hrm_text": {**_COMMON, "num_hidden_layers": (1, 2), "H_cycles": (1, 2), "L_cycles": (1, 3)}
    | {"head_dim": (8, 12)},
    "unlimited_ocr_text": {**_COMMON, **_EXPERTS, "sliding_window": (30,)},
    "dory": {
        **{**_COMMON, "head_dim": (8, 12), "sliding_window": (6, 30), "n_input_layers": (1,)},
        **{"n_output_layers": (1,), "n_recurrent_loops": (1, 2, 3)},
        "recurrent_kv_cache_mode": (None, "per_loop"),
    },
}
TYPES = tuple(KNOBS)
# Multimodal types with the one of these that they nest.
WRAPPERS = {
    **{"qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text"},
    **{"qwen4_exp": "qwen4_exp_text", "dots3_note": "dots3_note_text", "lfm2_vl": "lfm2"},
    **{"glm5_next": "glm5_next_text", "inkling2": "inkling2_text", "lfm3_vl": "lfm3"},
    **{"inkling2_loop": "inkling2_loop_text", "inkling_mm_model": "inkling_text"},
    **{"mistral_large4": "mistral_large4_text", "minimax_m3_vl": "minimax_m3_vl_text"},
    **{"minicpm_ocr": "qwen3_5_text", "minicpmv4_6": "qwen3_5_text", "jev": "qwen3_5_text"},
    **{"minicpmv4_7": "qwen3_5_text", "nemotron_h_omni": "nemotron_h"},
    **{"nemo_speechlm": "nemotron_h", "hy_v4_vl": "hy_v4_vl_text"},
    "unlimited_ocr": "unlimited_ocr_text",
}


def state_config(model_type: str, seed: int) -> dict[str, Any]:
    """The config number `seed` of this type; the same on every run."""
    chance = random.Random(f"{model_type}/{seed}")
    chosen = {key: chance.choice(values) for key, values in KNOBS[model_type].items()}
    values = {key: value for key, value in chosen.items() if value is not None}
    # copied: a nested object that a caller changes would be the next config's, too
    return deepcopy({"model_type": model_type, **values})
