"""What vLLM does for one model_type alone, each with its source. No other file here names one."""

from ..version import Version


def default_cache(model_type: str, version: Version) -> str | None:
    """The layout of the cache where --kv-cache-dtype names none; None: as the model computes.

    0.11.0 stored DeepSeek-V3.2's latents in a layout of its own (DeepseekV32ForCausalLM of
    vllm/model_executor/models/config.py).
    """
    first = version.at_least(0, 11) and not version.at_least(0, 11, 1)
    return "fp8_ds_mla" if first and model_type == "deepseek_v32" else None
