"""Small random configs of every model_type that transformers has, from a fixed sample.

`KNOBS` maps a config key to the values it may take; None leaves the key out, so that the class
default applies. Each type gets flags that its class ignores, too.
"""

import random
from copy import deepcopy
from typing import Any

Knobs = dict[str, tuple[Any, ...]]
FLAG = (True, False)

_BASE: Knobs = {
    "vocab_size": (97, 130),
    "tie_word_embeddings": FLAG,
    "pad_token_id": (0,),  # the class default lies outside a small vocabulary
}
_COMMON: Knobs = {
    **_BASE,
    "hidden_size": (32, 48, 64),
    "intermediate_size": (24, 56, 80),
    "num_hidden_layers": (1, 2, 3, 5),
    "num_attention_heads": (4, 8),
    "num_key_value_heads": (1, 2, 4),
    "head_dim": (8, 12),
    "max_position_embeddings": (33, 40),
    **dict.fromkeys(("attention_bias", "mlp_bias", "use_bias"), FLAG),
}


def _common(*without: str, **more: tuple[Any, ...]) -> Knobs:
    return {key: values for key, values in {**_COMMON, **more}.items() if key not in without}


def _own(**names: tuple[Any, ...]) -> Knobs:
    """A class with names of its own."""
    return {**_BASE, **names}


_EXPERTS: Knobs = {"num_experts": (2, 5), "num_experts_per_tok": (1, 2)}
_LOCAL: Knobs = {"num_local_experts": (2, 5), "num_experts_per_tok": (1, 2)}
_ROUTED: Knobs = {
    "n_routed_experts": (4, 8),
    "num_experts_per_tok": (2,),
    "n_shared_experts": (1, 2),
    "first_k_dense_replace": (0, 1, 2),
    "moe_intermediate_size": (16, 20),
    "n_group": (1,),
    "topk_group": (1,),
}
_SPARSE: Knobs = {
    **_EXPERTS,
    "moe_intermediate_size": (16, 20),
    "decoder_sparse_step": (1, 2),
    "mlp_only_layers": (None, [0], [1]),
    "shared_expert_intermediate_size": (24, 28),
}
_MLA = _common(
    *("head_dim", "num_key_value_heads"),
    q_lora_rank=(16,),
    kv_lora_rank=(8,),
    qk_rope_head_dim=(4,),
    qk_nope_head_dim=(8,),
    v_head_dim=(12,),
    **_ROUTED,
)
_GPT = _own(
    n_embd=(32, 48),
    n_head=(4,),
    n_layer=(1, 3),
    n_positions=(33, 40),
    n_inner=(None, 50),
    rotary_dim=(4,),
)
_SEQ2SEQ = _own(
    d_model=(32, 48),
    encoder_layers=(1, 2),
    decoder_layers=(2, 3),
    encoder_attention_heads=(4,),
    decoder_attention_heads=(2, 4),
    encoder_ffn_dim=(40, 56),
    decoder_ffn_dim=(24, 72),
)
_T5 = _own(
    d_model=(32, 48),
    d_kv=(8, 12),
    d_ff=(40, 56),
    num_layers=(1, 2),
    num_decoder_layers=(None, 3),
    num_heads=(4,),
    relative_attention_num_buckets=(8,),
    feed_forward_proj=("relu", "gated-gelu"),
)
_BERT = _common(*("head_dim", "num_key_value_heads"), type_vocab_size=(1, 2))
_IMAGE: Knobs = {
    "hidden_size": (32, 48),
    "intermediate_size": (24, 40),
    "num_hidden_layers": (1, 2),
    "num_attention_heads": (4,),
    "num_channels": (1, 3),
    "image_size": (32, 48),
    "patch_size": (8, 16),
}
_FRAMES: Knobs = {
    "depth": (1, 2),
    "num_heads": (4,),
    "patch_size": (4, 8),
    "in_channels": (1, 3),
    "spatial_merge_size": (1, 2),
    "temporal_patch_size": (1, 2),
    "hidden_size": (32, 48),
    "intermediate_size": (24, 40),
}
_DEEPSTACK: Knobs = {
    **_FRAMES,
    "out_hidden_size": (20, 28),
    "num_position_embeddings": (16,),
    "deepstack_visual_indexes": ([], [0], [0, 1]),
}


def _classes(*names: str) -> tuple[list[str], ...]:
    return tuple([name] for name in names)


_LLAMA_LIKE = (
    *("llama", "apertus", "cohere2", "ernie4_5", "gemma", "gemma2", "gemma3_text", "glm", "glm4"),
    *("granite", "ministral3", "mistral", "nemotron", "olmo", "olmo2", "olmo3", "phi3", "qwen2"),
    *("qwen3", "qwen3_vl_text", "smollm3", "hunyuan_v1_dense", "starcoder2"),
)
KNOBS: dict[str, Knobs] = {
    **dict.fromkeys(_LLAMA_LIKE, _COMMON),
    **dict.fromkeys(("qwen2_vl_text", "qwen2_5_vl_text"), _common("head_dim")),
    **dict.fromkeys(("mixtral", "granitemoe", "minimax_m2", "gpt_oss"), _common(**_LOCAL)),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "kimi_k2"), _MLA),
    **dict.fromkeys(("qwen3_moe", "qwen3_vl_moe_text"), _common(**_SPARSE)),
    "cohere": _common(use_qk_norm=FLAG),
    "exaone4": _common(sliding_window=(16,)),
    "internlm3": _common("attention_bias", "mlp_bias", bias=(False,), qkv_bias=(False,)),
    "seed_oss": _common(attention_out_bias=FLAG),
    "phi": _common("head_dim", qk_layernorm=FLAG, num_attention_heads=(4,)),
    "stablelm": _common(
        "head_dim",
        num_attention_heads=(4,),
        **dict.fromkeys(("use_parallel_residual", "use_qkv_bias", "qk_layernorm"), FLAG),
    ),
    "phimoe": _common(lm_head_bias=FLAG, **_LOCAL),
    "olmoe": _common("head_dim", **_EXPERTS),
    "hunyuan_v1_moe": _common(num_experts=(2, 4), moe_topk=(1, 2)),
    "ernie4_5_moe": _common(
        moe_num_experts=(4, 6),
        moe_k=(2,),
        moe_num_shared_experts=(0, 1, 2),
        moe_layer_start_index=(0, 1, 2),
        moe_layer_end_index=(-1, 2),
        moe_layer_interval=(1, 2),
        moe_intermediate_size=(16, 20),
    ),
    "glm4_moe": _common(use_qk_norm=FLAG, **_ROUTED),
    "qwen2_moe": _common("head_dim", qkv_bias=FLAG, **_SPARSE),
    "llama4_text": _common(
        intermediate_size_mlp=(40, 72),
        interleave_moe_layer_step=(1, 2),
        moe_layers=(None, [0], []),
        **_LOCAL,
    ),
    "dbrx": _own(
        tie_word_embeddings=(False,),
        d_model=(32, 48),
        n_heads=(4,),
        n_layers=(1, 3),
        max_seq_len=(40,),
        attn_config=({"kv_n_heads": 2, "clip_qkv": 8, "rope_theta": 1e4}, {"rope_theta": 1e4}),
        ffn_config=(
            {"ffn_hidden_size": 24, "moe_num_experts": 3, "moe_top_k": 2},
            {"ffn_hidden_size": 40},
        ),
    ),
    "bloom": _own(hidden_size=(32, 48), n_head=(4,), n_layer=(1, 3)),
    "falcon": _own(
        hidden_size=(32, 48),
        num_attention_heads=(4,),
        num_hidden_layers=(1, 3),
        num_kv_heads=(1, 2),
        num_ln_in_parallel_attn=(None, 1, 2),
        ffn_hidden_size=(None, 72),
        **dict.fromkeys(("bias", "new_decoder_architecture", "parallel_attn", "multi_query"), FLAG),
    ),
    "gpt2": _GPT,
    "gpt_bigcode": {**_GPT, "multi_query": FLAG},
    "gptj": _GPT,
    "gpt_neo": _own(
        hidden_size=(32, 48),
        num_heads=(4,),
        num_layers=(2,),
        attention_types=([[["global", "local"], 1]],),
        intermediate_size=(None, 50),
        max_position_embeddings=(40,),
    ),
    "gpt_neox": _common("head_dim", "num_key_value_heads", use_parallel_residual=FLAG),
    "mpt": _own(d_model=(32, 48), n_heads=(4,), n_layers=(1, 3), expansion_ratio=(2, 4)),
    "opt": _own(
        hidden_size=(32, 48),
        ffn_dim=(40, 72),
        num_attention_heads=(4,),
        num_hidden_layers=(1, 3),
        word_embed_proj_dim=(None, 16),
        max_position_embeddings=(40,),
        **dict.fromkeys(
            ("do_layer_norm_before", "_remove_final_layer_norm", "layer_norm_elementwise_affine"),
            FLAG,
        ),
        enable_bias=FLAG,
    ),
    "bart": {
        **_SEQ2SEQ,
        "max_position_embeddings": (40,),
        "architectures": _classes("BartModel", "BartForConditionalGeneration"),
    },
    "whisper": {
        **_SEQ2SEQ,
        "max_source_positions": (30,),
        "max_target_positions": (20,),
        "num_mel_bins": (10, 12),
        "architectures": _classes("WhisperForConditionalGeneration", "WhisperModel"),
    },
    "t5": {**_T5, "architectures": _classes("T5ForConditionalGeneration", "T5Model")},
    "mt5": {**_T5, "architectures": _classes("MT5ForConditionalGeneration", "MT5Model")},
    "bert": {
        **_BERT,
        "architectures": _classes(
            "BertForMaskedLM", "BertModel", "BertForPreTraining", "BertLMHeadModel"
        ),
    },
    "roberta": {
        **_BERT,
        "architectures": _classes("RobertaForMaskedLM", "RobertaModel", "RobertaForCausalLM"),
    },
    "vit": {
        **_IMAGE,
        "qkv_bias": FLAG,
        "pooler_output_size": (None, 20),
        "architectures": _classes("ViTModel"),
    },
    "gemma3n_text": _common(
        num_kv_shared_layers=(0, 1),
        num_hidden_layers=(6, 7),
        hidden_size_per_layer_input=(8,),
        vocab_size_per_layer_input=(60,),
        altup_num_inputs=(2, 3),
        laurel_rank=(4,),
    ),
    "gemma4_text": _common(
        num_kv_shared_layers=(0, 1, 2),
        num_hidden_layers=(9, 13),
        hidden_size_per_layer_input=(0, 8),
        vocab_size_per_layer_input=(60,),
        num_experts=(4,),
        top_k_experts=(2,),
        moe_intermediate_size=(16,),
        global_head_dim=(16,),
        **dict.fromkeys(("enable_moe_block", "use_double_wide_mlp", "attention_k_eq_v"), FLAG),
    ),
}

_MLLAMA_TEXT = _common(
    "head_dim", cross_attention_layers=([], [0], [0, 1]), num_hidden_layers=(2, 3)
)
# type of the wrapper: (type of the language model, its knobs, the tower's knobs, knobs at the top)
WRAPPED: dict[str, tuple[str, Knobs, Knobs, Knobs]] = {
    "gemma3": (
        "gemma3_text",
        _COMMON,
        {**_IMAGE, "vision_use_head": FLAG, "model_type": ("siglip_vision_model",)},
        {"architectures": _classes("Gemma3ForConditionalGeneration")},
    ),
    "gemma4": (
        "gemma4_text",
        KNOBS["gemma4_text"],
        {
            **_IMAGE,
            "position_embedding_size": (20,),
            "head_dim": (8,),
            "num_key_value_heads": (4,),
            "model_type": ("gemma4_vision",),
        },
        {"architectures": _classes("Gemma4ForConditionalGeneration")},
    ),
    "kimi_k25": (
        "deepseek_v3",
        _MLA,
        {
            **{k: v for k, v in _IMAGE.items() if k not in ("num_channels", "image_size")},
            "hidden_size": (32,),
            "pos_emb_height": (5, 6),
            "pos_emb_width": (6,),
            "merge_kernel_size": ([1, 2], [2, 2]),
            "model_type": ("kimi_k25_vision",),
        },
        {"projection_hidden_size": (32,)},
    ),
    "llama4": (
        "llama4_text",
        KNOBS["llama4_text"],
        {
            **_IMAGE,
            **dict.fromkeys(
                ("vision_output_dim", "projector_input_dim", "projector_output_dim"), (24,)
            ),
            "model_type": ("llama4_vision_model",),
        },
        {"architectures": _classes("Llama4ForConditionalGeneration")},
    ),
    "mistral3": (
        "mistral",
        _COMMON,
        {**_IMAGE, "model_type": ("pixtral",)},
        {
            "vision_feature_layer": (-1, [-1, -2]),
            "spatial_merge_size": (1, 2),
            "multimodal_projector_bias": FLAG,
        },
    ),
    "mllama": (
        "mllama_text_model",
        _MLLAMA_TEXT,
        {
            **{k: v for k, v in _IMAGE.items() if k != "num_attention_heads"},
            "attention_heads": (4,),
            "num_global_layers": (1, 2),
            "vision_output_dim": (36,),
            "intermediate_layers_indices": ([0],),
            "model_type": ("mllama_vision_model",),
        },
        {"architectures": _classes("MllamaForConditionalGeneration")},
    ),
    "qwen2_vl": (
        "qwen2_vl_text",
        KNOBS["qwen2_vl_text"],
        {**_FRAMES, "embed_dim": (32, 48), "mlp_ratio": (2, 4)},
        {"architectures": (None, *_classes("Qwen2VLForConditionalGeneration"))},
    ),
    "qwen2_5_vl": (
        "qwen2_5_vl_text",
        KNOBS["qwen2_5_vl_text"],
        {**_FRAMES, "out_hidden_size": (20, 28)},
        {"architectures": (None, *_classes("Qwen2_5_VLForConditionalGeneration"))},
    ),
    "qwen3_vl": ("qwen3_vl_text", _COMMON, _DEEPSTACK, {}),
    "qwen3_vl_moe": ("qwen3_vl_moe_text", KNOBS["qwen3_vl_moe_text"], _DEEPSTACK, {}),
}
TYPES = (*KNOBS, *WRAPPED, "clip")


def tiny_config(model_type: str, seed: int) -> dict[str, Any]:
    """The config number `seed` of this type; the same on every run."""
    chance = random.Random(f"{model_type}/{seed}")
    if model_type == "clip":
        text = {k: v for k, v in _COMMON.items() if "num_" not in k and k != "pad_token_id"}
        return {
            "model_type": model_type,
            "architectures": ["CLIPModel"],
            "projection_dim": chance.choice((16, 20)),
            "text_config": _pick(chance, {**text, "num_hidden_layers": (1, 3)}),
            "vision_config": _pick(chance, _IMAGE),
        }
    if model_type not in WRAPPED:
        return {"model_type": model_type, **_pick(chance, KNOBS[model_type])}
    text_type, knobs, tower, top = WRAPPED[model_type]
    tie = {"tie_word_embeddings": (None, *FLAG)}
    return {
        "model_type": model_type,
        "text_config": {"model_type": text_type, **_pick(chance, {**knobs, **tie})},
        "vision_config": _pick(chance, tower),
        **_pick(chance, {**top, **tie}),
    }


def _pick(chance: random.Random, knobs: Knobs) -> dict[str, Any]:
    chosen = {key: chance.choice(values) for key, values in knobs.items()}
    # copied: a nested object that a caller changes would be the next config's, too
    return deepcopy({key: value for key, value in chosen.items() if value is not None})
