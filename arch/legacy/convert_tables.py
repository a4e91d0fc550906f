"""The tables of convert as fields of an architecture, until every type is in its lineage's file."""

from collections.abc import Mapping
from typing import Any

from ..architecture import Conversion, Rotary
from ..gguf.form import Gguf

# Rows i and i + half turn together.
HALVES = frozenset(
    {
        *("arcee", "aria_text", "bamba", "bitnet", "cohere_compass_text"),
        *("cosmos3_edge_text", "cwm", "deepseek_ocr2_text", "diffllama", "evolla", "exaone"),
        *("falcon", "falcon_h1", "gemma", "gemma2", "glm4_moe", "glm4v_moe_text"),
        *("gpt_neox", "gpt_neox_japanese", "gpt_oss", "granite"),
        *("granite_swa", "granitemoe", "granite4_vision_text", "granite_docling_text"),
        *("emu3_text_model", "kyutai_speech_to_text", "muse_glimmer_text", "muse_spark_text"),
        *("granitemoe_swa", "granitemoehybrid", "granitemoeshared"),
        *("hrm_text", "hyperclovax", "internlm3", "iquestcoder", "jais2", "llama"),
        *("minimax", "minimax_m2", "ministral", "ministral3", "mistral", "mixtral"),
        *("mllama_text_model", "modernbert-decoder", "moshi", "nemotron", "olmo"),
        *("paddleocr_vl_text", "persimmon", "phi", "phi3", "phi4_multimodal", "phimoe", "qwen2"),
        *("qwen2_5_omni_text", "qwen2_5_vl_text", "qwen2_moe"),
        *("qwen2_vl_text", "recurrent_gemma", "seed_oss", "smollm3", "solar_open", "stablelm"),
        *("starcoder2", "t5gemma", "unlimited_ocr_text", "vaultgemma", "zamba2"),
    }
)
# Rows 2 i and 2 i + 1 turn together.
PAIRS = frozenset(
    {
        *("codegen", "cohere", "cohere2", "cohere2_moe", "ernie4_5", "ernie4_5_moe"),
        *("ernie4_5_vl_moe_text", "glm", "glm4", "glm4v_text", "glm_ocr_text", "gptj", "helium"),
        *("llama4_text", "roformer"),
    }
)
# Nothing turns.
NONE = frozenset(
    {
        *("bart", "bert", "bert-generation", "big_bird", "bigbird_pegasus", "biogpt"),
        *("blenderbot", "blenderbot-small", "bloom", "camembert", "ctrl", "data2vec-text"),
        *("electra", "ernie", "fsmt", "git", "gpt-sw3", "gpt2", "gpt_bigcode", "gpt_neo"),
        *("jamba", "led", "longt5", "m2m_100", "marian", "mbart", "megatron-bert", "mpt", "mt5"),
        *("musicgen_decoder", "musicgen_melody_decoder", "cpmant"),
        *("mvp", "nemotron_h", "nllb-moe", "opt", "pegasus", "pegasus_x", "plbart", "pop2piano"),
        *("prophetnet", "rembert", "roberta", "roberta-prelayernorm", "roc_bert", "seamless_m4t"),
        *("seamless_m4t_v2", "speech_to_text", "speecht5", "switch_transformers", "t5", "trocr"),
        *("umt5", "whisper", "xglm", "xlm-roberta", "xlm-roberta-xl", "xmod", "zamba"),
    }
)
BY_LAYER = frozenset(
    {
        *("gemma", "gemma2", "granite", "llama", "mistral", "olmo", "phi", "qwen2", "qwen3"),
        *("smollm3", "starcoder2"),
    }
)
# Types that take an even number only: half of the V heads are subtracted from the other half.
EVEN_ONLY = frozenset({"diffllama"})
# Types whose config refuses a hidden_size that is no multiple of the query heads, though head_dim
# is free. So padding has to find a number of query heads that divides it.
WIDTH_CHECKED = frozenset(
    {
        *("arcee", "aria_text", "cosmos3_edge_text", "cwm", "deepseek_ocr2_text", "exaone"),
        *("gemma2", "gemma3_text", "gemma3n_text", "higgs_audio_v2", "hyperclovax", "internlm3"),
        *("iquestcoder", "jais2", "llama", "muse_glimmer_text", "muse_spark_text", "t5gemma"),
        *("t5gemma2", "unlimited_ocr_text", "vaultgemma"),
    }
)
# Types whose eager attention in transformers takes one K/V head per query head only; its other ones
# take fewer.
NO_EAGER = frozenset({"unlimited_ocr_text"})

# Types whose K/V heads cannot be merged exactly, with the reason.
REASONS: Mapping[str, str] = {
    "blt": "transformers fails to generate with a cache, so that fewer K/V heads save nothing",
    "doge": "its mask is computed from the values of all K/V heads at once",
    "jetmoe": "it has as many query heads in each expert as K/V heads, so that fewer of one mean"
    " fewer of the other",
    "pi0": "its expert for actions puts its K/V heads in the same cache, and has them from a config"
    " of its own",
    "zaya": "its keys and queries are convolved together, so that no head stands by itself",
}

NORMED_KEYS: Mapping[str, str | bool] = {
    "llama4_text": "use_qk_norm",
    **dict.fromkeys(("muse_glimmer_text", "muse_spark_text", "nanochat"), True),
}
ALIBI: Mapping[str, str | bool] = {"bloom": True, "falcon": "alibi", "mpt": True}
CHANGED_VALUES: Mapping[str, str | bool] = {
    **dict.fromkeys(("gemma3n_text", "gemma4_text", "gemma4_unified_text"), True),
    "diffusion_gemma_text": True,
    "roformer": "rotary_value",
}
NUMBERED_HEADS: Mapping[str, str | bool] = {"cpmant": True}  # columns of a table beside the layers
_ATTENTION = {"num_hidden_layers": 2, "layer_types": ["full_attention"] * 2}
_VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "bamba": {"attn_layer_indices": [0]},
    "falcon": {"new_decoder_architecture": True, "multi_query": False},
    "gpt_bigcode": {"multi_query": False},
    "granitemoehybrid": _ATTENTION,
    "lfm2_moe": _ATTENTION,
    "qwen4_exp_text": {"indexer_n_heads": 2, "indexer_head_dim": 128},
}


def rotary(model_type: str) -> Rotary | None:
    if model_type in HALVES:
        return "halves"
    if model_type in PAIRS:
        return "pairs"
    return "none" if model_type in NONE else None


def conversion(model_type: str) -> Conversion:
    return Conversion(
        refused=REASONS.get(model_type),
        by_layer=model_type in BY_LAYER,
        even_only=model_type in EVEN_ONLY,
        width_checked=model_type in WIDTH_CHECKED,
        eager=model_type not in NO_EAGER,
        only=1 if model_type == "gpt_bigcode" else None,
        variant=_VARIANTS.get(model_type, {}),
        norms_keys=NORMED_KEYS.get(model_type, False),
        alibi=ALIBI.get(model_type, False),
        changes_values=CHANGED_VALUES.get(model_type, False),
        numbers_heads=NUMBERED_HEADS.get(model_type, False),
    )


def gguf_of(model_type: str) -> tuple[Gguf, ...]:
    return ()
