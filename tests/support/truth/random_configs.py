"""Tiny random configs of any model_type, from the fields that its config class declares.

A field is known by its name: each name has a few small values, and a class's own spelling of a
standard name is found through its `attribute_map`. A key is now and then left out or null, so that
class defaults and derived values are tried too.
"""

import dataclasses
import random
from copy import deepcopy
from typing import Any

from transformers import CONFIG_MAPPING, PreTrainedConfig

Config = dict[str, Any]

HEADS = (4, 8)
# Fields that decide what an audit counts. `None` is null in the file, ABSENT leaves the key out.
ABSENT = "absent"
_SIZES: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(
        ("hidden_size", "d_model", "n_embd", "n_embed", "emb_dim", "embed_dim", "dim"), (64, 96)
    ),
    **dict.fromkeys(
        ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "layers"), (3, 4, 7)
    ),
    **dict.fromkeys(("encoder_layers", "decoder_layers"), (2, 3)),
    **dict.fromkeys(
        ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"), HEADS
    ),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), HEADS),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads"), (1, 2, 4, None, ABSENT)),
    "head_dim": (8, 12, 16, None, ABSENT),
    **dict.fromkeys(("d_kv", "kv_channels", "dim_head", "global_head_dim"), (8, 12)),
    **dict.fromkeys(("num_hidden_groups", "inner_group_num"), (1, 2)),
    "block_sizes": ([1, 2], [2, 2, 1]),
    "d_head": (8, 12),
    **dict.fromkeys(("q_groups", "k_groups", "v_groups", "post_attention_groups"), (1, 2, 4)),
    **dict.fromkeys(("head_ratio", "cross_layer_interval"), (1, 2)),
    **dict.fromkeys(("use_bottleneck", "use_bottleneck_attention"), (True, False)),
    **dict.fromkeys(("qk_layer_norms", "cross_attn_all_layers"), (True, False)),
    **dict.fromkeys(("qk_channels", "v_channels"), (None, 32)),
    "cross_attention_shape_for_attention": ("kv", "q"),
    "num_blocks": (1, 2),
    "num_self_attention_heads": (2, 4),
    "num_cross_attention_heads": (2, 4),
    "relative_attention": (True, False),
    "pos_att_type": (None, ["c2p"], ["c2p", "p2c"]),
    "num_decoder_layers": (None, 2, 5),
    **dict.fromkeys(("sliding_window", "attention_chunk_size", "window_size"), (6, 8, None)),
    "local_attention": (16,),
    **dict.fromkeys(("q_lora_rank",), (16, 24, None)),
    **dict.fromkeys(("kv_lora_rank",), (8, 12)),
    **dict.fromkeys(("qk_rope_head_dim",), (4, 8)),
    **dict.fromkeys(("qk_nope_head_dim",), (8, 12)),
    "v_head_dim": (8, 12),
    "num_kv_shared_layers": (0, 1, 2),
    "num_global_key_value_heads": (None, 1, 2),
    "max_window_layers": (0, 2, 28),
    "relative_attention_num_buckets": (8,),
    **dict.fromkeys(
        ("qkv_bias", "bias", "enable_bias", "use_bias", "attention_bias"), (True, False)
    ),
    **dict.fromkeys(("attention_out_bias", "use_qkv_bias", "use_sliding_window"), (True, False)),
    **dict.fromkeys(("use_qk_norm", "qk_layernorm", "qk_norm", "multi_query"), (True, False)),
    **dict.fromkeys(("attention_k_eq_v", "new_decoder_architecture"), (True, False)),
    **dict.fromkeys(("tie_word_embeddings",), (True, False)),
}
# Fields that only have to be small or fitting.
_SMALL: Config = {
    **dict.fromkeys(("vocab_size", "vocab_size_per_layer_input", "padded_vocab_size"), 130),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "n_inner", "ffn_hidden_size"), 48),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "d_inner", "d_inner_hid"), 48),
    **dict.fromkeys(("moe_intermediate_size", "expert_ffn_hidden_size"), 16),
    **dict.fromkeys(("shared_expert_intermediate_size", "intermediate_size_mlp"), 16),
    **dict.fromkeys(("shared_intermediate_size", "expert_ffn_dim"), 16),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("moe_num_experts", "zero_expert_num"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "moe_k", "top_k_experts"), 2),
    **dict.fromkeys(("n_group", "topk_group", "n_shared_experts"), 1),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"), 64),
    **dict.fromkeys(("max_source_positions", "max_target_positions"), 64),
    **dict.fromkeys(("max_encoder_position_embeddings", "max_decoder_position_embeddings"), 64),
    **dict.fromkeys(("hidden_size_per_layer_input", "laurel_rank"), 8),
    **dict.fromkeys(("embedding_size", "embedding_dim"), 64),
    **dict.fromkeys(("input_embedding_size", "output_embedding_size"), 64),
    **dict.fromkeys(("rotary_dim", "partial_rotary_dim"), 4),
    **dict.fromkeys(("attention_window", "local_radius", "global_block_size", "block_size"), 8),
}
# Without these a model takes the size of a real one.
FIXED_SIZES = {
    *(key for key, among in _SIZES.items() if any(type(v) is int and v >= 64 for v in among)),
    *("model_type", "is_encoder_decoder", "num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    *("layers", "encoder_layers", "decoder_layers", "num_decoder_layers", "num_encoder_layers"),
    *("kv_lora_rank", "q_lora_rank", "max_window_layers", "d_latents", *_SMALL),
    *("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"),
    *("encoder_attention_heads", "decoder_attention_heads"),
}
_TOWERS = ("vision", "audio", "image", "speech", "visual", "codec", "vq", "qformer", "backbone")


_ROPE: Config = {"rope_type": "default", "rope_theta": 10_000.0}
# What some classes ask for beside that.
_NEEDED: dict[str, Config] = {
    "dbrx": {"attn_config": {"kv_n_heads": 2, "clip_qkv": 8, "rope_theta": 1e4}},
    "gpt_neo": {"num_layers": 4, "attention_types": [[["global", "local"], 2]], "window_size": 8},
    "apertus1p5_text": {"vocab_size": 270_000},
    "blt_local_encoder": {"cross_attn_k": 2},
    "blt_local_decoder": {"cross_attn_k": 2},
    # Patches of one byte: those by entropy depend on weights, which are not initialised here.
    "blt": {
        "encoder_hash_byte_group_size": [3, 4],
        "encoder_hash_byte_group_vocab": 50,
        "patching_mode": "static",
    },
    "chameleon": {"vocabulary_map": {"<image>": 2}},
    "cohere_compass_text": {
        "rope_parameters": dict.fromkeys(("full_attention", "sliding_attention"), _ROPE)
    },
    "ernie4_5_vl_moe_text": {"moe_intermediate_size": [16, 16]},
    "mpnet": {"relative_attention_num_buckets": 32},
    "esm": {"pad_token_id": 1, "mask_token_id": 1},
    "moshi": {"audio_vocab_size": 40},
    "xmod": {"default_language": "en_XX", "languages": ["en_XX"]},
}


_PER_LAYER_INPUT = ("hidden_size_per_layer_input", "vocab_size_per_layer_input")
_ASSISTANT: Config = {"text_config": dict.fromkeys(_PER_LAYER_INPUT, 0)}
# Their cross-attention writes over the cache of the self-attention.
_BREAK_ACROSS = ("big_bird", "megatron-bert")
# Classes that do not accept their own defaults.
_REFUSES_DEFAULTS = dict.fromkeys(("gemma4_assistant", "gemma4_unified_assistant"), _ASSISTANT)


def random_config(model_type: str, seed: int, task: str = "") -> Config:
    """A config.json of `model_type`, the same for the same seed."""
    chosen = random.Random(f"{model_type} {seed}")
    config_class = CONFIG_MAPPING[model_type]
    values = {"model_type": model_type, **_fields(config_class, chosen)}
    if task == "causal" and config_class.is_encoder_decoder and not config_class.sub_configs:
        values["is_encoder_decoder"] = False  # the decoder alone
    elif task == "causal":
        declared = declared_defaults(config_class) if model_type not in _REFUSES_DEFAULTS else {}
        if model_type in _BREAK_ACROSS:
            declared.pop("add_cross_attention")
        roles = [role for role in ("is_decoder", "add_cross_attention") if role in declared]
        values |= dict.fromkeys(roles[: chosen.randint(0, len(roles))], True)
    return values


def default_config(config_class: type[PreTrainedConfig]) -> PreTrainedConfig:
    return config_class(**_REFUSES_DEFAULTS.get(config_class.model_type, {}))


def declared_defaults(config_class: type[PreTrainedConfig]) -> Config:
    """What a bare config of the class says."""
    return default_config(config_class).to_dict()


def nullable(config_class: type[PreTrainedConfig]) -> set[str]:
    """The fields whose type allows null."""
    return {field.name for field in dataclasses.fields(config_class) if "None" in str(field.type)}


def _fields(config_class: type[PreTrainedConfig], chosen: random.Random) -> Config:
    config = default_config(config_class)
    values: Config = {}
    may_be_null = nullable(config_class)
    for name, value in sorted(config.to_dict().items()):
        if name in config_class.sub_configs:
            if not any(tower in name for tower in _TOWERS):
                values[name] = _nested(config, name, chosen)
        elif name in _SIZES:
            pick = chosen.choice(_SIZES[name])
            if pick != ABSENT and (pick is not None or name in may_be_null):
                values[name] = pick
        elif name in _SMALL:
            values[name] = _SMALL[name]
        elif name.endswith("_token_id") and type(value) is int:
            values[name] = 1
    if "layer_types" in vars(config) and not chosen.randrange(3):
        count = values.get("num_hidden_layers", 0)
        local = "chunked" if "attention_chunk_size" in values else "sliding"
        kinds = [f"{kind}_attention" for kind in ("full", local)]
        values["layer_types"] = [chosen.choice(kinds) for _ in range(count)]
    if "kv_lora_rank" in values:  # its classes want one K/V head per head
        values.pop("head_dim", None)
        values["num_key_value_heads"] = values.get("num_attention_heads")
    _fit(config_class.model_type, values)
    # copied: a nested object that a caller changes would be the next config's, too
    return deepcopy(values | _NEEDED.get(config_class.model_type, {}))


_SECTIONED = (
    *("glm4v", "glm_ocr", "glm46v", "qwen2_vl", "qwen2_5_vl", "qwen2_5_omni", "hunyuan_vl"),
    *("ernie4_5_vl", "glm_image"),
)
_SAME_WIDTH = {"granite_docling": "vision_config", "muse_spark": "audio_config"}


def _fit(model_type: str, values: Config) -> None:
    """Makes sizes agree where a class insists that they do."""
    heads = values.get("num_attention_heads")
    if model_type == "pix2struct_text_model":
        values["d_kv"] = values["hidden_size"] // values["num_heads"]
    if model_type == "helium":
        values["head_dim"] = values["hidden_size"] // heads
    if model_type.startswith("blt"):
        values.pop("head_dim", None)  # only its rotary part reads it
    if model_type == "blt":
        values["decoder_config"]["hidden_size"] = values["encoder_config"]["hidden_size"]
        values["decoder_config"]["hidden_size_global"] = values["global_config"]["hidden_size"]
    if model_type == "idefics":
        values["vision_config"] = {"embed_dim": 48, "num_hidden_layers": 1, "image_size": 28}
        values["vision_config"] |= {"num_attention_heads": 2, "intermediate_size": 32}
    if model_type == "perceiver":
        values |= {"d_latents": 32, "num_latents": 4, "num_self_attends_per_block": 3}
    if "swin" in model_type:
        stages, heads = values.pop("num_layers", 4) // 2, values["num_heads"] // 2
        values |= {"depths": [1, 2, 1][:stages], "num_heads": [heads, heads, 2 * heads][:stages]}
        values |= {"window_size": values.get("window_size") or 7, "mlp_ratio": heads / 1.5}
    if model_type == "squeezebert":
        values["embedding_size"] = values["hidden_size"]
    if model_type == "mobilebert":
        values["intra_bottleneck_size"] = 32
    if model_type == "longcat_flash":
        values["head_dim"] = values["qk_rope_head_dim"]
        values["zero_expert_num"] = 0  # the class makes room for them that no file fills
    if model_type == "hunyuan_vl_text":
        values["head_dim"] = values.get("head_dim") or 8
    if model_type.startswith(_SECTIONED) and heads:
        half = (values.get("head_dim") or values["hidden_size"] // heads) // 2
        values["rope_parameters"] = {
            **_ROPE,
            "partial_rotary_factor": 1.0,
            "mrope_section": [half - half // 4 * 2, half // 4, half // 4],
        }
    if model_type == "ernie4_5_vl_moe_text":
        values["rope_parameters"]["mrope_section"].reverse()
    if model_type == "deepseek_ocr2_text":
        values["mlp_layer_types"] = ["dense"] * values["num_hidden_layers"]
    if model_type in _SAME_WIDTH:
        hidden = values["text_config"]["hidden_size"]
        values[_SAME_WIDTH[model_type]] = {"out_hidden_size": hidden}
    if model_type in _REFUSES_DEFAULTS:
        values["text_config"] |= dict.fromkeys(_PER_LAYER_INPUT, 0)
        values["text_config"].pop("num_kv_shared_layers")
    if model_type == "fun_asr_nano":
        hidden = values["text_config"]["hidden_size"]
        values["adaptor_config"] = {"hidden_size": hidden, "intermediate_size": hidden // 4}
    if model_type.endswith("encoder-decoder"):
        values["decoder"] |= {"is_decoder": True, "add_cross_attention": True}


def _nested(config: PreTrainedConfig, name: str, chosen: random.Random) -> Any:
    nested = getattr(config, name)
    if not isinstance(nested, PreTrainedConfig):
        return None
    return {"model_type": nested.model_type, **_fields(type(nested), chosen)}
