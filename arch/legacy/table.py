"""The family table: one row per `model_type`. A new architecture is a row here (CONTRIBUTING.md).

What a row claims was measured on models that transformers 5.24 builds; types marked as remote code
have no class there and follow the modelling file published with their weights.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from .. import tying
from ..attention import layer_kinds as kinds
from ..attention import shape
from ..decoders.exaone import exaone4
from ..decoders.glm import CHATGLM_KEYS as CHATGLM_NAMES
from ..decoders.glm import CHATGLM_TENSORS
from ..decoders.hunyuan import HUNYUAN_TENSORS
from ..decoders.phi import PHI3_SMALL_TENSORS, PHI_TENSORS, QKV_PROJ_TENSORS, STABLELM_TENSORS
from ..tensors import names
from . import odd
from .row import Family
from .rows.patterns import (
    ALL_HEADS_FIXED,
    BART,
    BERT,
    GEMMA2,
    GEMMA3,
    GEMMA4,
    GLM,
    GPT2,
    LLAMA,
    MLA,
    NO_BIAS,
    OLMO2,
    QWEN2,
    QWEN3,
    T5,
    VIT,
    WRAPPER,
)

# Old spellings of the standard names, from before a class was part of transformers.
FALCON_NAMES = {
    "hidden_size": ("n_embed",),
    "num_attention_heads": ("n_head",),
    "num_hidden_layers": ("n_layer",),
    "num_key_value_heads": ("num_kv_heads", "n_head_kv"),
}

COMMON: dict[str, Family] = {
    # Llama and what differs from it by a flag
    "llama": LLAMA,
    "apertus": replace(LLAMA, norm="head"),
    "cohere": replace(LLAMA, norm="heads", norm_if="use_qk_norm"),
    "cohere2": replace(LLAMA, kinds=kinds.every(4, "sliding_window_pattern")),
    "ernie4_5": Family(qkv_bias="use_bias", o_bias="use_bias"),
    "ernie4_5_moe": Family(qkv_bias="use_bias", o_bias="use_bias"),
    "exaone4": replace(NO_BIAS, norm="head", kinds=exaone4),
    "gemma": LLAMA,
    "gemma2": GEMMA2,
    "gemma3_text": GEMMA3,
    "glm": GLM,
    "glm4": GLM,
    "glm4_moe": replace(GLM, norm="head", norm_if="use_qk_norm"),
    "gpt_oss": replace(LLAMA, kinds=kinds.every(2), other=shape.one_per_head),
    "granite": LLAMA,
    "granitemoe": LLAMA,
    "hunyuan_v1_dense": replace(LLAMA, norm="head", names=HUNYUAN_TENSORS),
    "hunyuan_v1_moe": replace(LLAMA, norm="head", names=HUNYUAN_TENSORS),
    "llama4_text": replace(LLAMA, kinds=kinds.without_rope(kinds.CHUNKED)),
    "minimax_m2": replace(NO_BIAS, norm="heads"),
    "ministral3": replace(NO_BIAS, kinds=kinds.windowed),
    "mistral": replace(NO_BIAS, kinds=kinds.windowed),
    "mixtral": replace(NO_BIAS, kinds=kinds.windowed),
    "nemotron": LLAMA,
    "olmo": LLAMA,
    "olmo2": OLMO2,
    "olmo3": replace(OLMO2, kinds=kinds.every(4)),
    "olmoe": OLMO2,
    "phi": Family(
        names=PHI_TENSORS, qkv_bias=True, o_bias=True, norm="head_bias", norm_if="qk_layernorm"
    ),
    "phi3": replace(NO_BIAS, names=QKV_PROJ_TENSORS, kinds=kinds.windowed),
    "phimoe": replace(LLAMA, kinds=kinds.windowed),
    "qwen2": QWEN2,
    "qwen2_moe": Family(qkv_bias="qkv_bias", kinds=kinds.qwen2_moe),
    "qwen2_vl_text": replace(QWEN2, fixed_head_dim=True),
    "qwen2_5_vl_text": replace(QWEN2, fixed_head_dim=True),
    "qwen3": QWEN3,
    "qwen3_moe": replace(QWEN3, kinds=kinds.windowed_on_demand),
    "qwen3_vl_text": replace(LLAMA, norm="head"),
    "qwen3_vl_moe_text": replace(LLAMA, norm="head", kinds=kinds.windowed),
    "seed_oss": Family(qkv_bias="attention_bias", o_bias="attention_out_bias"),
    "smollm3": replace(LLAMA, kinds=kinds.smollm3),
    "stablelm": Family(
        names=STABLELM_TENSORS,
        qkv_bias="use_qkv_bias",
        norm="heads",
        norm_if="qk_layernorm",
        fixed_head_dim=True,
    ),
    "starcoder2": Family(qkv_bias="use_bias", o_bias="use_bias", kinds=kinds.windowed),
    # Fused or otherwise named projections
    "bloom": replace(GPT2, names=names.BLOOM, aliases={"hidden_size": ("n_embed",)}),
    "dbrx": Family(
        names=names.DBRX,
        fixed_head_dim=True,
        key_value_heads=odd.attn_config_heads,
        key_value_keys=("attn_config.kv_n_heads",),
    ),
    "falcon": Family(
        names=names.BLOOM,
        qkv_bias="bias",
        o_bias="bias",
        fixed_head_dim=True,
        key_value_heads=odd.falcon_key_value_heads,
        key_value_keys=("num_kv_heads",),
        broadcasts_key_value="new_decoder_architecture",
        aliases=FALCON_NAMES,
    ),
    "gpt2": GPT2,
    "gpt_bigcode": replace(
        GPT2,
        names=names.GPT_BIGCODE,
        key_value_heads=odd.multi_query_heads,
        key_value_keys=("multi_query",),
    ),
    "gpt_neo": replace(ALL_HEADS_FIXED, names=names.GPT_NEO, o_bias=True),
    "gpt_neox": replace(
        ALL_HEADS_FIXED,
        names=names.GPT_NEOX,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
    ),
    "gptj": replace(ALL_HEADS_FIXED, names=names.GPTJ),
    "mpt": replace(ALL_HEADS_FIXED, names=names.MPT),
    "opt": replace(ALL_HEADS_FIXED, names=names.BART, qkv_bias="enable_bias", o_bias="enable_bias"),
    # Encoders and encoder-decoders
    "bart": BART,
    "bert": BERT,
    "clip": replace(GPT2, names=names.BART, build=odd.two_towers),
    "mt5": T5,
    "roberta": BERT,
    "t5": T5,
    "vit": VIT,
    "whisper": replace(BART, k_bias=False),
    # Latent attention
    "deepseek_v2": MLA,
    "deepseek_v3": MLA,
    "kimi_k2": replace(MLA, same_as="deepseek_v3"),
    # Layers of several kinds
    "gemma3n_text": replace(LLAMA, norm="head", kinds=kinds.every(5), build=odd.gemma),
    "gemma4_text": GEMMA4,
    "mllama_text_model": replace(
        NO_BIAS,
        build=odd.mllama,
        tied=tying.never,
        defaults={"cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38]},
    ),
    # Multimodal: the language model is nested
    "gemma3": WRAPPER,
    "gemma3n": WRAPPER,
    "gemma4": WRAPPER,
    "kimi_k25": WRAPPER,
    "llama4": replace(WRAPPER, tied=tying.text_word),
    "mistral3": WRAPPER,
    "mllama": replace(WRAPPER, tied=tying.never),
    "qwen2_vl": replace(WRAPPER, tied=tying.either_word),
    "qwen2_5_vl": replace(WRAPPER, tied=tying.either_word),
    "qwen3_vl": WRAPPER,
    "qwen3_vl_moe": WRAPPER,
    # Remote code
    "baichuan": replace(NO_BIAS, names=names.BAICHUAN, key_value_heads=shape.as_query_heads),
    "chatglm": Family(
        names=CHATGLM_TENSORS,
        qkv_bias="add_qkv_bias",
        o_bias="add_bias_linear",
        key_value_heads=odd.chatglm_heads,
        aliases=CHATGLM_NAMES,
    ),
    "deepseek": LLAMA,
    "grok-1": replace(NO_BIAS, names=names.GROK),
    "hunyuan": replace(
        LLAMA, norm="head", norm_if="use_qk_norm", names=HUNYUAN_TENSORS, same_as="hunyuan_v1_moe"
    ),
    "internlm2": Family(names=names.INTERNLM2, qkv_bias="bias", o_bias="bias"),
    "internlm3": Family(qkv_bias="qkv_bias", o_bias="bias"),
    "mimo": QWEN2,
    "nemotron-nas": replace(LLAMA, build=odd.nemotron_nas),
    "phi3small": Family(names=PHI3_SMALL_TENSORS, qkv_bias=True, o_bias=True, tied=tying.always),
    "qwen": Family(
        names=replace(names.GPT2, transposed=False),
        qkv_bias=True,
        o_bias="!no_bias",
        key_value_heads=shape.as_query_heads,
        aliases={"head_dim": ("kv_channels",), "max_position_embeddings": ("seq_length",)},
    ),
}

# Other spellings of a row's name.
SPELLINGS = {
    "stablelm_epoch": "stablelm",
    "RefinedWebModel": "falcon",
    "RefinedWeb": "falcon",
}


class FamilyTable(Mapping[str, Family]):
    """All rows. Those of common models are at hand; the others are imported when one is asked for
    that is not among them, or when all are: that keeps the start of an audit quick."""

    def __getitem__(self, model_type: str) -> Family:
        row = COMMON.get(model_type)
        return all_rows()[model_type] if row is None else row

    def __iter__(self) -> Iterator[str]:
        return iter(all_rows())

    def __len__(self) -> int:
        return len(all_rows())


@lru_cache
def all_rows() -> dict[str, Family]:
    """The common rows and those of the rooms `rows` and `states`."""
    from . import states_rows as states
    from .rows import decoders, encoder_decoders, encoders, multimodal, remote, towers

    return {
        **COMMON,
        **decoders.ROWS,
        **encoders.ROWS,
        **towers.ROWS,
        **encoder_decoders.ROWS,
        **remote.ROWS,
        **states.ROWS,
        **dict.fromkeys(states.WRAPPERS, WRAPPER),
        **multimodal.ROWS,
    }


FAMILIES: Mapping[str, Family] = FamilyTable()
