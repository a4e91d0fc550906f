"""Which rows of a q or k head rotate together, by type: measured on what transformers builds.

`tests/convert/test_freedom.py` turns keys by what stands here, in every type that converts.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from headcount.arch.our_types import GROUPED

from ..plan.source import Source

Rows = tuple[int, ...]
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
_FLOATS = {name: float(name) for name in ("Infinity", "-Infinity", "NaN")}


def rotated_rows(
    model_type: str, config: Mapping[str, Any] | None, head_dim: int
) -> tuple[Rows, Rows] | None:
    """The rows of a head that are real and imaginary parts of what is rotated, in the order of
    their frequencies; empty for a type without rotary embedding, None where that is not known.

    `config` is the language model's, as transformers reads it.
    """
    if model_type in NONE:
        return (), ()
    if model_type not in HALVES | PAIRS or config is None:
        return None
    count = rotated_count(config, head_dim)
    return None if count is None else rows_of(count, in_pairs=model_type in PAIRS)


def rows_of(count: int, *, in_pairs: bool) -> tuple[Rows, Rows]:
    """The real and the imaginary ones of the first `count` rows."""
    if in_pairs:
        return tuple(range(0, count, 2)), tuple(range(1, count, 2))
    return tuple(range(count // 2)), tuple(range(count // 2, count))


def rotated_count(config: Mapping[str, Any], head_dim: int) -> int | None:
    """How many rows of a head rotate; None where layers differ, or that is no even number."""
    absolute = config.get("rotary_dim")
    if "rope_parameters" not in config:
        return absolute if isinstance(absolute, int) else head_dim
    shares = set(_shares(config["rope_parameters"] or {}))
    if len(shares) != 1:
        return None
    count = int(head_dim * shares.pop())
    return None if count % 2 else count


def _shares(rope: Mapping[str, Any]) -> Iterator[float]:
    """The rotated share of a head, of each kind of layer."""
    nested = [value for value in rope.values() if isinstance(value, dict)]
    for one in nested or [dict(rope)]:
        yield float(one.get("partial_rotary_factor") or 1.0)


def config_as_read(source: Source) -> dict[str, Any] | None:
    """The language model's config with what its class adds to it; None if the class, which may be
    of another release, refuses the file."""
    from transformers import CONFIG_MAPPING

    from headcount.running.built.meta_model import without_code

    values = dict(_decoded(without_code(source.config)))
    model_type = str(values.pop("model_type", "")).removeprefix(GROUPED)
    try:
        config = CONFIG_MAPPING[model_type].from_dict(values)
        text: dict[str, Any] = config.get_text_config(decoder=True).to_dict()
    except Exception:  # whatever a class raises for a config that the audit can read
        return None
    return text


def _decoded(value: Any) -> Any:
    """Infinity and NaN as transformers writes them are numbers again."""
    if isinstance(value, dict):
        tag = value.get("__float__") if len(value) == 1 else None
        known = _FLOATS.get(tag) if isinstance(tag, str) else None
        return {k: _decoded(v) for k, v in value.items()} if known is None else known
    return [_decoded(item) for item in value] if isinstance(value, list) else value
