"""Types whose code is published with their weights, and that transformers therefore cannot build.

Totals are those that their makers give for the models, checked by adding up the shapes of the
published code by hand; where a model is one of transformers' under another name, other tests build
that.
"""

import math
from typing import Any

import pytest

from headcount.arch.read_config import read_config
from headcount.model.errors import UnsupportedModelError

QWEN: dict[str, Any] = {
    **{"model_type": "qwen", "architectures": ["QWenLMHeadModel"], "hidden_size": 4096},
    **{"intermediate_size": 22016, "kv_channels": 128, "num_attention_heads": 32},
    **{"num_hidden_layers": 32, "no_bias": True, "seq_length": 2048, "vocab_size": 151936},
    **{"tie_word_embeddings": False},
}
# As Qwen/Qwen-7B was first published, in August 2023.
QWEN_FIRST: dict[str, Any] = {
    **{"model_type": "qwen", "architectures": ["QWenLMHeadModel"], "n_embd": 4096},
    **{"ffn_hidden_size": 22016, "kv_channels": 128, "n_head": 32, "n_layer": 32},
    **{"no_bias": True, "seq_length": 2048, "vocab_size": 151936, "tie_word_embeddings": False},
}
VISUAL = {
    **{"heads": 16, "image_size": 448, "image_start_id": 151857, "layers": 48},
    **{"mlp_ratio": 4.9231, "output_dim": 4096, "patch_size": 14, "width": 1664},
}
AUDIO = {
    **{"add_audio_bos_eos_token": True, "audio_start_id": 155163, "avg_pool": True},
    **{"n_ctx": 1500, "n_head": 20, "n_layer": 32, "n_mels": 80, "n_state": 1280},
    **{"output_dim": 4096},
}
PHI3_VISION: dict[str, Any] = {
    **{"model_type": "phi3_v", "architectures": ["Phi3VForCausalLM"], "hidden_size": 3072},
    **{"intermediate_size": 8192, "num_attention_heads": 32, "num_hidden_layers": 32},
    **{"num_key_value_heads": 32, "sliding_window": 131072, "vocab_size": 32064},
    "img_processor": {
        **{"image_dim_out": 1024, "model_name": "openai/clip-vit-large-patch14-336"},
        **{"name": "clip_vision_model", "num_img_tokens": 144},
    },
}
MOLMO: dict[str, Any] = {
    **{"model_type": "molmo", "architectures": ["MolmoForCausalLM"], "hidden_size": 3584},
    **{"attention_layer_norm": False, "embedding_size": 152064, "intermediate_size": 37888},
    **{"num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4},
    **{"qkv_bias": True, "tie_word_embeddings": False, "vocab_size": 152064},
}
INTERNVL2_2B: dict[str, Any] = {
    **{"model_type": "internvl_chat", "architectures": ["InternVLChatModel"]},
    "downsample_ratio": 0.5,
    "llm_config": {
        **{"model_type": "internlm2", "architectures": ["InternLM2ForCausalLM"]},
        **{"hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 16},
        **{"num_key_value_heads": 8, "num_hidden_layers": 24, "vocab_size": 92553},
        **{"bias": False, "tie_word_embeddings": False},
    },
    "vision_config": {
        **{"model_type": "intern_vit_6b", "hidden_size": 1024, "intermediate_size": 4096},
        **{"num_hidden_layers": 24, "num_attention_heads": 16, "image_size": 448},
        **{"patch_size": 14, "num_channels": 3, "norm_type": "layer_norm", "qkv_bias": True},
        **{"qk_normalization": False},
    },
}
# tiiuae/falcon-40b, falcon-7b and falcon-rw-1b as they were first published.
REFINED_WEB_40B: dict[str, Any] = {
    **{"model_type": "RefinedWeb", "architectures": ["RWForCausalLM"], "alibi": False},
    **{"bias": False, "hidden_size": 8192, "n_head": 128, "n_head_kv": 8, "n_layer": 60},
    **{"parallel_attn": True, "vocab_size": 65024},
}
REFINED_WEB_7B: dict[str, Any] = {
    **{"model_type": "RefinedWebModel", "architectures": ["RWForCausalLM"], "alibi": False},
    **{"bias": False, "hidden_size": 4544, "multi_query": True, "n_head": 71, "n_layer": 32},
    **{"parallel_attn": True, "vocab_size": 65024},
}
REFINED_WEB_1B: dict[str, Any] = {
    **{"model_type": "RefinedWebModel", "architectures": ["RWForCausalLM"], "alibi": True},
    **{"bias": True, "hidden_size": 2048, "multi_query": False, "n_head": 32, "n_layer": 24},
    **{"parallel_attn": False, "vocab_size": 50304},
}
MINIMAX_01: dict[str, Any] = {
    **{"model_type": "minimax", "architectures": ["MiniMaxForCausalLM"], "head_dim": 128},
    **{"attn_type_list": ([0] * 7 + [1]) * 10, "hidden_size": 6144, "intermediate_size": 9216},
    **{"num_attention_heads": 64, "num_experts_per_tok": 2, "num_hidden_layers": 80},
    **{"num_key_value_heads": 8, "num_local_experts": 32, "shared_intermediate_size": 0},
    **{"sliding_window": None, "tie_word_embeddings": False, "vocab_size": 200064},
}
MINICPM_2B: dict[str, Any] = {
    **{"model_type": "minicpm", "architectures": ["MiniCPMForCausalLM"], "hidden_size": 2304},
    **{"intermediate_size": 5760, "num_attention_heads": 36, "num_key_value_heads": 36},
    **{"num_hidden_layers": 40, "vocab_size": 122753},
}
# replit/replit-code-v1_5-3b, an MPT of grouped queries by llm-foundry; its sizes are those of
# huggingface/candle (candle-transformers/src/models/mpt.rs, Config::replit_code_v1_5_3b).
MPT_GROUPED: dict[str, Any] = {
    **{"model_type": "mpt", "architectures": ["MPTForCausalLM"], "d_model": 3072},
    **{"n_heads": 24, "n_layers": 32, "vocab_size": 32768, "max_seq_len": 4096},
    "attn_config": {"attn_type": "grouped_query_attention", "kv_n_heads": 8},
}
MINICPM_V_2_6: dict[str, Any] = {
    **{"model_type": "minicpmv", "architectures": ["MiniCPMV"], "version": 2.6},
    **{"hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28},
    **{"num_hidden_layers": 28, "num_key_value_heads": 4, "vocab_size": 151666},
    **{"drop_vision_last_layer": False, "query_num": 64, "tie_word_embeddings": False},
    "vision_config": {
        **{"hidden_size": 1152, "image_size": 980, "intermediate_size": 4304},
        **{"model_type": "siglip", "num_attention_heads": 16, "num_hidden_layers": 27},
        "patch_size": 14,
    },
}
MIMO_V2_5_PRO: dict[str, Any] = {
    **{"model_type": "mimo_v2", "architectures": ["MiMoV2ForCausalLM"], "head_dim": 192},
    **{"add_full_attention_sink_bias": False, "add_swa_attention_sink_bias": True},
    **{"hidden_size": 6144, "intermediate_size": 16384, "moe_intermediate_size": 2048},
    **{"hybrid_layer_pattern": [0, *[1] * 6, *[0, *[1] * 7] * 6, *[0, *[1] * 6] * 2, 0]},
    **{"moe_layer_freq": [0, *[1] * 69], "n_routed_experts": 384, "num_attention_heads": 128},
    **{"num_experts_per_tok": 8, "num_hidden_layers": 70, "num_key_value_heads": 8},
    **{"sliding_window": 128, "sliding_window_size": 128, "swa_head_dim": 192},
    **{"swa_num_attention_heads": 128, "swa_num_key_value_heads": 8, "swa_v_head_dim": 128},
    **{"tie_word_embeddings": False, "v_head_dim": 128, "vocab_size": 152576},
}
# The shapes that a listing of the headers of its files gives (public index file id 62727537601),
# less scales, the routers' corrections and three layers that predict further tokens.
MIMO_V2_5_PRO_HELD = sum(
    [
        2 * 152576 * 6144,
        70 * (2 * 6144 + 27136 * 6144 + 6144 * 16384) + 60 * 128,
        3 * 6144 * 16384 + 69 * (384 * 3 * 2048 * 6144 + 384 * 6144) + 6144,
    ]
)
TOTALS: list[Any] = [
    pytest.param(QWEN_FIRST, 7_721_324_544, id="Qwen/Qwen-7B of August 2023"),
    pytest.param({**QWEN, "visual": VISUAL}, 9_656_935_168, id="Qwen/Qwen-VL"),
    pytest.param(PHI3_VISION, 4_146_621_440, id="microsoft/Phi-3-vision-128k-instruct"),
    pytest.param(MOLMO, 8_021_025_280, id="allenai/Molmo-7B-D-0924"),
    pytest.param(INTERNVL2_2B, 2_205_754_368, id="OpenGVLab/InternVL2-2B"),
    pytest.param(REFINED_WEB_40B, 41_303_293_952, id="tiiuae/falcon-40b of May 2023"),
    pytest.param(REFINED_WEB_7B, 6_921_720_704, id="tiiuae/falcon-7b of May 2023"),
    pytest.param(REFINED_WEB_1B, 1_311_625_216, id="tiiuae/falcon-rw-1b of May 2023"),
    pytest.param(MINIMAX_01, 456_089_655_296, id="MiniMaxAI/MiniMax-Text-01"),
    pytest.param(
        {**MINIMAX_01, "model_type": "minimax_m1"}, 456_089_655_296, id="MiniMaxAI/MiniMax-M1-80k"
    ),
    pytest.param(MINICPM_2B, 2_724_880_896, id="openbmb/MiniCPM-2B-sft-bf16"),
    pytest.param(MINICPM_V_2_6, 8_099_175_152, id="openbmb/MiniCPM-V-2_6"),
    pytest.param(MIMO_V2_5_PRO, MIMO_V2_5_PRO_HELD, id="XiaomiMiMo/MiMo-V2.5-Pro"),
    pytest.param(
        {key: value for key, value in MINICPM_V_2_6.items() if key != "vision_config"},
        8_099_175_152,
        id="the same tower by the defaults of its code",
    ),
]


@pytest.mark.parametrize(("config", "total"), TOTALS)
def test_totals_are_the_published_ones(config: dict[str, Any], total: int) -> None:
    assert read_config(config, "config.json").total() == (total, None)


def test_totals_that_are_published_rounded() -> None:
    """Qwen-Audio: 8.4 B (its paper, arXiv 2311.07919); Replit Code 1.5: 3.3 B (its card), 3.32 by
    the matrices of candle's mpt.rs: Wqkv [d + 2 * 8 * 128, d], out_proj [d, d], up and down of 4 d,
    norms without biases, and an embedding that is the head, too."""
    audio, _ = read_config({**QWEN, "vocab_size": 155947, "audio": AUDIO}, "config.json").total()
    grouped, _ = read_config(MPT_GROUPED, "config.json").total()
    assert audio is not None and grouped is not None
    assert round(audio / 1e9, 1) == 8.4
    d = 3072
    layer = (d + 2 * 8 * 128) * d + d * d + 2 * 4 * d * d + 2 * d
    assert grouped == 32 * layer + 32768 * d + d
    assert round(grouped / 1e9, 2) == 3.32


# internlm/internlm-20b and openPangu-Embedded-7B: the config.json files that come with them.
INTERNLM_20B: dict[str, Any] = {
    **{"model_type": "internlm", "architectures": ["InternLMForCausalLM"], "bias": False},
    **{"hidden_size": 5120, "intermediate_size": 13824, "num_attention_heads": 40},
    **{"num_hidden_layers": 60, "num_key_value_heads": 40, "vocab_size": 103168},
    "tie_word_embeddings": False,
}
PANGU_7B: dict[str, Any] = {
    **{"model_type": "PanguEmbedded", "architectures": ["PanguEmbeddedForCausalLM"]},
    **{"bias": True, "hidden_size": 4096, "intermediate_size": 12800, "vocab_size": 153376},
    **{"num_attention_heads": 32, "num_hidden_layers": 34, "num_key_value_heads": 8},
    "tie_word_embeddings": False,
}


def test_totals_that_cards_give_in_billions() -> None:
    """InternLM: 20 B; openPangu: 7 B without the embedding and the head, 8 K/V heads."""
    count, _ = read_config(INTERNLM_20B, "config.json").total()
    assert count == 20_088_714_240 and round(count / 1e9) == 20
    reading = read_config(PANGU_7B, "config.json")
    whole, _ = reading.total()
    assert whole is not None and round((whole - 2 * 153376 * 4096) / 1e9) == 7
    assert reading.spec.cache_bytes_per_token() == 34 * 2 * 8 * 128 * 2


@pytest.mark.parametrize(
    ("config", "nbytes"),
    [
        (REFINED_WEB_40B, 122_880),
        (REFINED_WEB_7B, 8_192),
        (MINIMAX_01, 40_960),
        (MPT_GROUPED, 32 * 2 * 8 * 128 * 2),
        ({**MPT_GROUPED, "attn_config": {"kv_n_heads": 8}}, 32 * 2 * 24 * 128 * 2),
        ({**MPT_GROUPED, "attn_config": {"attn_type": "multiquery_attention"}}, 32 * 2 * 128 * 2),
    ],
)
def test_bytes_of_one_more_token(config: dict[str, Any], nbytes: int) -> None:
    spec = read_config(config, "config.json").spec
    more = spec.cache_bytes(tokens=1001, bits=16) - spec.cache_bytes(tokens=1000, bits=16)
    assert more == nbytes


@pytest.mark.parametrize("model_type", ["internlm", "xverse", "PanguEmbedded", "Yi"])
def test_other_names_of_llama(model_type: str) -> None:
    """As transformers builds a Llama of these sizes, with biases of the attention or without."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    sizes = {
        **{"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4},
        **{"num_hidden_layers": 3, "vocab_size": 99, "tie_word_embeddings": False},
    }
    biased = model_type in ("internlm", "PanguEmbedded")
    if model_type in ("PanguEmbedded", "Yi"):
        sizes["num_key_value_heads"] = 2
    with torch.device("meta"):
        config = transformers.LlamaConfig(**sizes, attention_bias=biased)
        model = transformers.LlamaForCausalLM(config)
    given = {**sizes, "model_type": model_type, "bias": biased}
    count = sum(parameter.numel() for parameter in model.parameters())
    assert read_config(given, "config.json").total() == (count, None)


@pytest.mark.parametrize(
    ("version", "bias", "norm"),
    [(None, False, 0), ("2.5", False, 0), (2.6, True, 0), ("4.5", False, 2 * 128)],
)
def test_the_version_of_minicpm_v_tells_its_language_model(
    version: Any, bias: bool, norm: int
) -> None:
    config = {
        **{"model_type": "minicpmv", "version": version, "hidden_size": 3584},
        **{"num_attention_heads": 28, "num_key_value_heads": 4, "num_hidden_layers": 28},
    }
    reading = read_config(config, "config.json")
    mixer: Any = reading.spec.layers[0].mixers[0]
    assert (mixer.q_bias, mixer.norm_parameters, mixer.num_key_value_heads) == (bias, norm, 4)
    with pytest.raises(UnsupportedModelError, match=r"9\.9"):
        read_config({**config, "version": "9.9"}, "config.json")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"version": "2.0"}, "timm"),
        # as vLLM tells 2.0 from 2.5
        ({"version": None, "hidden_size": 2304, "num_attention_heads": 36}, "timm"),
        ({"model_type": "minicpmo"}, "sound and speech"),
        ({"vision_config": None}, "vision_config is null"),
    ],
)
def test_towers_of_minicpm_v_that_are_not_counted(changes: dict[str, Any], why: str) -> None:
    total, reason = read_config({**MINICPM_V_2_6, **changes}, "config.json").total()
    assert total is None and why in str(reason)


def test_the_last_layer_of_minicpm_vs_tower_may_be_dropped() -> None:
    """One layer of SigLIP so400m: 4 x (1152^2 + 1152) of attention, 9,921,872 of its MLP, two
    norms."""
    dropped = {**MINICPM_V_2_6, "drop_vision_last_layer": True}
    layer = 4 * (1152**2 + 1152) + (2 * 1152 * 4304 + 4304 + 1152) + 4 * 1152
    assert read_config(dropped, "config.json").total() == (8_099_175_152 - layer, None)


def test_deepseek_vl2_tiny_has_heads_of_keys_and_values() -> None:
    text = {
        **{"model_type": "deepseek_v2", "hidden_size": 1280, "kv_lora_rank": None},
        **{"num_attention_heads": 10, "num_key_value_heads": 10, "num_hidden_layers": 12},
        **{"q_lora_rank": None, "qk_nope_head_dim": 0, "qk_rope_head_dim": 0, "v_head_dim": 0},
        **{"use_mla": False, "vocab_size": 129280},
    }
    config = {"model_type": "deepseek_vl_v2", "language_config": text, "vision_config": {}}
    reading = read_config(config, "config.json")
    assert not reading.spec.assumed
    assert reading.spec.cache_bytes(tokens=1, bits=16) == 12 * 2 * 10 * 128 * 2


DEEPSEEK_3B = {
    **{"model_type": "deepseek_v2", "architectures": ["DeepseekV2ForCausalLM"]},
    **{"first_k_dense_replace": 1, "hidden_size": 1280, "intermediate_size": 6848},
    **{"kv_lora_rank": None, "moe_intermediate_size": 896, "n_routed_experts": 64},
    **{"n_shared_experts": 2, "num_attention_heads": 10, "num_experts_per_tok": 6},
    **{"num_hidden_layers": 12, "num_key_value_heads": 10, "q_lora_rank": None},
    **{"qk_nope_head_dim": 0, "qk_rope_head_dim": 0, "v_head_dim": 0, "use_mla": False},
    "vocab_size": 129280,
}
DEEPSEEK_OCR: dict[str, Any] = {
    **{"model_type": "deepseek_vl_v2", "architectures": ["DeepseekOCRForCausalLM"]},
    **{"language_config": DEEPSEEK_3B, "tile_tag": "2D"},
    "projector_config": {"input_dim": 2048, "n_embed": 1280, "projector_type": "linear"},
    "vision_config": {
        **{"image_size": 1024, "mlp_ratio": 3.7362, "model_type": "vision"},
        "width": {"clip-l-14-224": {"layers": 24}, "sam_vit_b": {"layers": 12, "width": 768}},
    },
}
DEEPSEEK_VL2_TINY: dict[str, Any] = {
    **{"model_type": "deepseek_vl_v2", "architectures": ["DeepseekVLV2ForCausalLM"]},
    **{"language_config": DEEPSEEK_3B, "tile_tag": "2D", "projector_config": {"n_embed": 1280}},
    "vision_config": {
        **{"layers": 27, "mlp_ratio": 3.7362, "patch_size": 14, "width": 1152},
        **{"model_name": "siglip_so400m_patch14_384", "model_type": "vision"},
    },
}


@pytest.mark.parametrize("model_type", ["deepseek_vl_v2", "deepseek_ocr"])
def test_sam_and_clip_stand_in_front_of_a_decoder(model_type: str) -> None:
    """3,336,106,240 parameters are in deepseek-ai/DeepSeek-OCR's file, as the Hub counts them."""
    config = {**DEEPSEEK_OCR, "model_type": model_type}
    assert read_config(config, "config.json").total() == (3_336_106_240, None)


def test_a_tower_that_is_not_read_leaves_no_total() -> None:
    """zai-org/glm-4v-9b, whose index has 13.9 B where GLM-4-9B, its language model, has 9.4 B."""
    text = {
        **{"model_type": "chatglm", "hidden_size": 4096, "ffn_hidden_size": 13696},
        **{"num_layers": 40, "num_attention_heads": 32, "kv_channels": 128, "add_qkv_bias": True},
        **{"multi_query_attention": True, "multi_query_group_num": 2, "padded_vocab_size": 151552},
    }
    tower = {"hidden_size": 1792, "num_hidden_layers": 63, "num_heads": 16, "patch_size": 14}
    assert read_config(text, "config.json").total() == (9_399_951_360, None)
    seeing = read_config({**text, "vision_config": tower}, "config.json")
    assert seeing.total() == (None, "its vision_config is not counted")
    assert seeing.spec.cache_bytes(tokens=1, bits=16) == 40 * 2 * 2 * 128 * 2


def test_experts_that_are_not_read_leave_no_total() -> None:
    """mlabonne/phixtral-4x2_8 holds 7.8 B under the type of phi-2, which has 2,779,683,840."""
    phi2 = {
        **{"model_type": "phi-msft", "n_embd": 2560, "n_head": 32, "n_layer": 32},
        **{"n_positions": 2048, "rotary_dim": 32, "vocab_size": 51200},
    }
    assert read_config(phi2, "config.json").total() == (2_779_683_840, None)
    mixed = {**phi2, "num_local_experts": 4, "num_experts_per_tok": 2}
    clause = "its experts (num_local_experts) are not counted"
    assert read_config(mixed, "config.json").total() == (None, clause)


def test_the_second_ocr_has_layers_of_qwen2_behind_sam() -> None:
    """DeepseekOcr2ForConditionalGeneration of transformers 5.24, built with the sizes of
    deepseek-ai/DeepSeek-OCR-2 (its vision_config here as published), has 3,389,119,360."""
    sam = {"downsample_channels": [512, 1024], "heads": 12, "layers": 12, "width": 768}
    config = {
        **{**DEEPSEEK_OCR, "architectures": ["DeepseekOCR2ForCausalLM"]},
        "projector_config": {"input_dim": 896, "n_embed": 1280, "projector_type": "linear"},
        "vision_config": {
            **{"image_size": 1024, "mlp_ratio": 3.7362, "model_name": "deepencoderv2"},
            **{"model_type": "vision", "width": {"qwen2-0-5b": {"dim": 896}, "sam_vit_b": sam}},
        },
    }
    assert read_config(config, "config.json").total() == (3_389_119_360, None)


def test_deepseek_vl2_has_siglip_and_a_projector_of_two_matrices() -> None:
    """SigLIP so400m of 384 pixels with its pooling head has 428,225,600; four patches of 1,152 are
    joined, and two vectors end rows and part views (modeling_deepseek_vl_v2.py)."""
    ocr, _ = read_config(DEEPSEEK_OCR, "config.json").total()
    sam, clip = 89_670_912 + 9 * 512 * (256 + 1024), 303_179_776 - 2 * 1024
    assert ocr is not None
    language = ocr - sam - clip - (2048 + 1) * 1280 - 2 * 1280
    projector = (4 * 1152 + 1) * 1280 + (1280 + 1) * 1280
    expected = language + 428_225_600 + projector + 2 * 1280
    assert read_config(DEEPSEEK_VL2_TINY, "config.json").total() == (expected, None)


def test_towers_that_a_file_leaves_out_are_those_of_the_code() -> None:
    """SigLIP large of 384 pixels (VisionEncoderConfig), or OCR's constants."""
    bare = {key: value for key, value in DEEPSEEK_OCR.items() if key != "vision_config"}
    ocr = read_config({**bare, "model_type": "deepseek_ocr"}, "config.json").total()
    assert ocr == (3_336_106_240, None)
    large = {"layers": 24, "width": 1024, "heads": 16, "mlp_ratio": 4, "patch_size": 16}
    tiny = {**DEEPSEEK_VL2_TINY, "vision_config": large}
    left_out = {key: value for key, value in tiny.items() if key != "vision_config"}
    total, _ = read_config(tiny, "config.json").total()
    assert read_config(left_out, "config.json").total() == (total, None)


@pytest.mark.parametrize(
    "changes",
    [
        {"tile_tag": "1D"},
        {"projector_config": {"n_embed": 1280, "projector_type": "low_high_hybrid"}},
        {"vision_config": {**DEEPSEEK_VL2_TINY["vision_config"], "global_pool": "avg"}},
    ],
)
def test_other_towers_and_projectors_of_deepseek_vl2_are_not_counted(
    changes: dict[str, Any],
) -> None:
    total, why = read_config({**DEEPSEEK_VL2_TINY, **changes}, "config.json").total()
    assert total is None
    assert why is not None and "not counted" in why


def test_minicpm_with_compressed_keys_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="sparse_config"):
        read_config({**MINICPM_2B, "sparse_config": {"block_size": 64}}, "config.json")


VIDEO_LLAMA3_7B = {
    **{"model_type": "videollama3_qwen2", "architectures": ["Videollama3Qwen2ForCausalLM"]},
    **{"hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28},
    **{"num_hidden_layers": 28, "num_key_value_heads": 4, "vocab_size": 152_064},
    **{"mm_projector_type": "mlp2x_gelu", "tie_word_embeddings": False},
}
ENCODER_7B = {
    **{"model_type": "videollama3_vision_encoder", "hidden_size": 1152, "num_hidden_layers": 27},
    **{"intermediate_size": 4304, "num_attention_heads": 16, "patch_size": 14},
}


def test_video_llama_3_has_what_transformers_own_class_of_it_has() -> None:
    """VideoLlama3ForConditionalGeneration of transformers 5.24 with the same sizes."""
    config = {**VIDEO_LLAMA3_7B, "vision_encoder_config": ENCODER_7B}
    assert read_config(config, "config.json").total() == (8_044_744_944, None)
    elsewhere = {**VIDEO_LLAMA3_7B, "vision_encoder": "DAMO-NLP-SG/VL3-SigLIP-NaViT"}
    known, why = read_config(elsewhere, "config.json").total()
    assert known is None and "vision_encoder" in str(why)


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "llava_qwen", "hidden_size": 3584, "num_attention_heads": 28},
        {"model_type": "videollama3_qwen2", "hidden_size": 3584, "num_attention_heads": 28},
        {"model_type": "videollama3", "hidden_size": 3584, "num_attention_heads": 28},
        {
            "model_type": "llava_llama",
            "llm_cfg": {"model_type": "qwen2", "hidden_size": 3584, "num_attention_heads": 28},
        },
    ],
    ids=str,
)
def test_wrappers_with_a_flat_or_nested_language_model(config: dict[str, Any]) -> None:
    """A Qwen2-7B each: 28 layers of 4 K/V heads."""
    sizes = {"num_key_value_heads": 4, "num_hidden_layers": 28}
    inner = config.get("llm_cfg")
    whole = {**config, "llm_cfg": {**inner, **sizes}} if inner else {**config, **sizes}
    reading = read_config(whole, "config.json")
    assert not reading.spec.assumed
    assert reading.text.model_type == "qwen2"
    assert reading.spec.cache_bytes(tokens=1, bits=16) == 28 * 2 * 4 * 128 * 2


# moonshotai/Kimi-K3's language model: the keys that its code reads beyond Kimi-Linear's.
KIMI_K3: dict[str, Any] = {
    **{"model_type": "kimi_linear", "attn_res_block_size": 12, "first_k_dense_replace": 1},
    **{"hidden_size": 7168, "intermediate_size": 33792, "kv_lora_rank": 512},
    **{"latent_moe_use_norm": True, "mla_use_output_gate": True, "moe_intermediate_size": 3072},
    **{"num_attention_heads": 96, "num_experts": 896, "num_experts_per_token": 16},
    **{"num_hidden_layers": 93, "num_key_value_heads": 96, "num_shared_experts": 2},
    **{"q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64},
    **{"routed_expert_hidden_size": 3584, "tie_word_embeddings": False, "v_head_dim": 128},
    "vocab_size": 163840,
    "linear_attn_config": {
        "full_attn_layers": [*range(4, 93, 4), 93],
        "kda_layers": [i for i in range(1, 93) if i % 4],
        **{"head_dim": 128, "num_heads": 96, "short_conv_kernel_size": 4},
        "use_full_rank_gate": True,
    },
}


KIMI_K3_VISION = {
    **{"attn_bias": False, "init_pos_emb_height": 64, "init_pos_emb_width": 64},
    **{"linear_bias": False, "merge_kernel_size": [2, 2], "mm_hidden_size": 1024},
    **{"mm_projector_type": "patchmergerv2", "norm_type": "rmsnorm", "patch_size": 14},
    **{"patch_embed_proj_bias": False, "qkv_hidden_size": 1536, "text_hidden_size": 7168},
    **{"vt_hidden_size": 1024, "vt_intermediate_size": 4096, "vt_num_attention_heads": 12},
    "vt_num_hidden_layers": 27,
}
# Shapes of every tensor of moonshotai/Kimi-K3's 96 files, as a listing of their headers gives them
# (public index file id 62826164383; experts unpacked), and how many there are.
KIMI_K3_DELTA = [  # A_log has a place for each of 128 elements, of which 96 heads use one each
    *[(96,), (96, 7168), (12288,), (128, 7168), (12288, 128), (128,)],
    *[(12288, 4)] * 3,
    *[(12288, 7168)] * 3,
]
KIMI_K3_LATENT = [(512,), (576, 7168), (24576, 512), (1536,), (1536, 7168), (18432, 1536)]
KIMI_K3_LAYER = [(7168,)] * 6 + [(12288, 7168), (7168, 12288)]
KIMI_K3_SPARSE = [
    *[(896, 7168), (3584, 7168), (3584,), (7168, 3584)],  # less the router's correction
    *[(7168, 6144)] * 3,
    *[(3072, 3584)] * 3 * 896,
]
KIMI_K3_BLOCK = [(4096, 1024), (1024, 4096), (1024,), (1024,), (1024, 1536), (4608, 1024)]
KIMI_K3_REST = [
    *[(163840, 7168)] * 2,
    *[(7168, 33792)] * 3,
    *[(7168,)] * 4,
    *[(4096, 4096), (7168, 4096), (1024,), (64, 64, 1024), (1024, 3, 14, 14)],
]


def test_kimi_k3_holds_what_its_files_do() -> None:
    layers = 69 * KIMI_K3_DELTA + 24 * KIMI_K3_LATENT + 93 * KIMI_K3_LAYER + 92 * KIMI_K3_SPARSE
    held = sum(map(math.prod, layers + 27 * KIMI_K3_BLOCK + KIMI_K3_REST))
    assert held == 2_779_931_752_544
    config = {"model_type": "kimi_k3", "text_config": KIMI_K3, "vision_config": KIMI_K3_VISION}
    assert read_config(config, "config.json").total() == (held, None)
    other = {**config, "vision_config": {**KIMI_K3_VISION, "mm_projector_type": "perceiver"}}
    assert read_config(other, "config.json").total()[0] is None


def test_kimi_k3() -> None:
    """2.8 T in all and 24 layers that keep 576 elements a token (its model card)."""
    reading = read_config({"model_type": "kimi_k3", "text_config": KIMI_K3}, "config.json")
    assert not reading.spec.assumed
    assert reading.spec.cache_bytes(tokens=2001, bits=16) - reading.spec.cache_bytes(
        tokens=2000, bits=16
    ) == (24 * 576 * 2)
    language, why = read_config(KIMI_K3, "config.json").total()
    assert why is None and language is not None
    assert round(language / 1e12, 1) == 2.8


def test_kimi_k25_by_the_names_of_its_own_code() -> None:
    """1,026,879,353,328 as transformers builds moonshotai/Kimi-K2.5; NVIDIA's files in NVFP4 have
    an empty type in `vision_config`, and the sizes of the tower under `vt_*`."""
    vision = {
        **{"init_pos_emb_height": 64, "init_pos_emb_width": 64, "merge_kernel_size": [2, 2]},
        **{"mm_hidden_size": 1152, "model_type": "", "patch_size": 14, "vt_hidden_size": 1152},
        **{"vt_intermediate_size": 4304, "vt_num_attention_heads": 16},
        **{"vt_num_hidden_layers": 27},
    }
    text = {
        **{"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"]},
        **{"first_k_dense_replace": 1, "hidden_size": 7168, "intermediate_size": 18432},
        **{"kv_lora_rank": 512, "moe_intermediate_size": 2048, "n_routed_experts": 384},
        **{"n_shared_experts": 1, "num_attention_heads": 64, "num_hidden_layers": 61},
        **{"q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64},
        **{"v_head_dim": 128, "vocab_size": 163840, "num_key_value_heads": 64},
    }
    config = {"model_type": "kimi_k25", "text_config": text, "tie_word_embeddings": False}
    architectures = ["KimiK25ForConditionalGeneration"]
    whole = {**config, "architectures": architectures, "vision_config": vision}
    assert read_config(whole, "config.json").total() == (1_026_879_353_328, None)
    half = {**whole, "vision_config": {**vision, "vt_num_hidden_layers": 13}}
    count, _ = read_config(half, "config.json").total()
    assert count is not None and count < 1_026_879_353_328


@pytest.mark.parametrize("model_type", ["deepseek_v4", "deepseek_ref"])
def test_deepseek_v4_by_its_name_in_converted_files(model_type: str) -> None:
    """sgl-project/DeepSeek-V4-Flash-FP8 names another type than deepseek-ai's own file."""
    ratios = [0, 0, *[4, 128] * 20, 4, 0]
    config = {
        **{"model_type": model_type, "architectures": ["DeepseekV4ForCausalLM"]},
        **{"hidden_size": 4096, "num_hidden_layers": 43, "num_attention_heads": 64},
        **{"num_key_value_heads": 1, "head_dim": 512, "vocab_size": 129280, "o_groups": 8},
        **{"moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1},
        **{"q_lora_rank": 1024, "o_lora_rank": 1024, "qk_rope_head_dim": 64, "hc_mult": 4},
        **{"index_head_dim": 128, "index_n_heads": 64, "sliding_window": 128},
        **{"compress_ratios": ratios, "num_hash_layers": 3},
    }
    reading = read_config(config, "config.json")
    assert not reading.spec.assumed
    assert {mixer.kind for layer in reading.spec.layers for mixer in layer.mixers} == {
        "compressed_attention"
    }
