"""What vLLM does for one model_type or class alone, each with its source. No other file here names
one."""

from ..version import Version

# DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES of vllm/config/vllm.py: since which version -> the classes.
_V2_CLASSES: tuple[tuple[tuple[int, ...], frozenset[str]], ...] = (
    ((0, 28), frozenset({"DeepseekV4ForCausalLM"})),
    ((0, 27), frozenset({"KimiK3ForConditionalGeneration"})),
    ((0, 26), frozenset({"InklingForCausalLM", "InklingForConditionalGeneration"})),
    ((0, 26), frozenset({"LongcatFlashNgramForCausalLM"})),
    (
        (0, 24),
        frozenset({"DeepseekV2ForCausalLM", "Qwen2MoeForCausalLM", "GraniteMoeForCausalLM"}),
    ),
    ((0, 23), frozenset({"LlamaForCausalLM", "MistralForCausalLM"})),
    ((0, 22), frozenset({"Qwen3ForCausalLM"})),
)
# _FLOAT16_NOT_SUPPORTED_MODELS of vllm/config/model.py: what has no bfloat16 cannot run them.
NOT_IN_FLOAT16 = frozenset({"gemma2", "gemma3", "gemma3_text", "glm4"})


def default_cache(model_type: str, version: Version) -> str | None:
    """The layout of the cache where --kv-cache-dtype names none; None: as the model computes.

    0.11.0 stored DeepSeek-V3.2's latents in a layout of its own (DeepseekV32ForCausalLM of
    vllm/model_executor/models/config.py), and DeepSeek-V4's entries always are (attention.py of
    vllm/models/deepseek_v4).
    """
    if model_type == "deepseek_v4":
        return "fp8_ds_mla"
    first = version.at_least(0, 11) and not version.at_least(0, 11, 1)
    return "fp8_ds_mla" if first and model_type == "deepseek_v32" else None


def default_runner_classes(version: Version) -> frozenset[str]:
    """The classes that ran on the V2 runner by default while it was not every model's."""
    known = (names for since, names in _V2_CLASSES if version.at_least(*since))
    return frozenset().union(*known)
