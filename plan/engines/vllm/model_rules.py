"""What vLLM does for one model_type or class alone, each with its source. No other file here names
one."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from headcount.model.mixers import Attention, LatentAttention, Mixer
from headcount.model.numbers import size

from ...devices import Device
from ...planned_model import PlannedModel
from ..version import Version

_MODELOPT_SINCE, _COMPRESSED_SINCE = (0, 14), (0, 15)
_MODELOPT_NVFP4_SINCE = (0, 20)
_GLM_IN_FP8_SINCE = (0, 32)  # not in 0.28; of the releases between, none was read

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


def default_cache(
    model_type: str, config: Mapping[str, Any], version: Version, device: Device | None = None
) -> str | None:
    """The layout of the cache where --kv-cache-dtype names none; None: as the model computes.

    Quantised weights may come with scales for a cache (get_kv_cache_quant_algo_string of
    vllm/utils/torch_utils.py for ModelOpt's, Attention of vllm/model_executor/layers/attention for
    those of compressed-tensors). 0.11.0 stored DeepSeek-V3.2's latents in a layout of its own
    (DeepseekV32ForCausalLM of vllm/model_executor/models/config.py), and DeepSeek-V4's entries
    always are (attention.py of vllm/models/deepseek_v4). GlmMoeDsaForCausalLM there takes 8 bit on
    10.x.
    """
    is_glm = model_type == "glm_moe_dsa" and version.at_least(*_GLM_IN_FP8_SINCE)
    if is_glm and device is not None and (device.capability or "").startswith("10."):
        return "fp8_e4m3"
    if model_type == "deepseek_v4":
        return "fp8_ds_mla"
    if model_type == "deepseek_v32" and version.at_least(0, 11) and not version.at_least(0, 11, 1):
        return "fp8_ds_mla"
    return _of_quantisation(config.get("quantization_config"), version)


def takes_bfloat16_as_auto(model_type: str) -> bool:
    """Whether --kv-cache-dtype bfloat16 says no more than none (DeepseekV32ForCausalLM there)."""
    return model_type == "deepseek_v32"


def _of_quantisation(found: object, version: Version) -> str | None:
    if not isinstance(found, Mapping):
        return None
    method = str(found.get("quant_method", ""))
    if method == "compressed-tensors":
        has_scheme = found.get("kv_cache_scheme") is not None
        return "fp8" if has_scheme and version.at_least(*_COMPRESSED_SINCE) else None
    if not method.startswith("modelopt") or not version.at_least(*_MODELOPT_SINCE):
        return None
    inner = found.get("quantization")
    holders = (inner, found) if isinstance(inner, Mapping) else (found,)
    keys = ("kv_cache_scheme", "kv_cache_quant_algo")
    named = next((value for key in keys for n in holders if (value := n.get(key))), None)
    return _of_modelopt(named, version)


def _of_modelopt(named: object, version: Version) -> str | None:
    if isinstance(named, Mapping):
        if named.get("type") != "float":
            return None
        is_fp8 = named.get("num_bits") == 8 and named.get("dynamic") is False
        named = "fp8" if is_fp8 else "nvfp4" if named.get("num_bits") == 4 else None
    name = named.lower() if isinstance(named, str) else None
    known = ("fp8", "nvfp4") if version.at_least(*_MODELOPT_NVFP4_SINCE) else ("fp8",)
    return name if name in known else None


def ignores_cache_dtype(model_type: str) -> bool:
    """Whether --kv-cache-dtype has no effect (FalconAttention of
    vllm/model_executor/models/falcon.py, and CLIPAttention of clip.py, hand their attention no
    cache's settings)."""
    return model_type in ("falcon", "clip")


# Types whose class runs attention as an encoder's, which keeps nothing, where their config has
# is_causal false (qwen2.py, llama.py and the like of vllm/model_executor/models).
_READ_IS_CAUSAL = frozenset({"apertus", "llama", "mistral", "qwen2", "qwen3"})


_CLIP_TEXT = 77  # max_position_embeddings of transformers' CLIPTextConfig


@lru_cache(maxsize=64)
def with_its_caches(model: PlannedModel) -> PlannedModel:
    """With the caches that vLLM's class has where transformers' has others: none of attention
    without a causal mask, and one of CLIP's encoder of texts, whose mask is causal
    (CLIPTextTransformer of vllm/model_executor/models/clip.py)."""
    kind = model.spec.model_type
    if kind in _READ_IS_CAUSAL and model.config.get("is_causal") is False:
        return _with_caches(model, {layer.stack: False for layer in model.spec.layers})
    if packs_convolutions(kind):
        from .short_convolutions import without_windows

        return without_windows(model)
    if kind != "clip":
        return model
    text = model.config.get("text_config")
    longest = size(text.get("max_position_embeddings")) if isinstance(text, Mapping) else None
    found = _with_caches(model, {"text": True})
    return replace(found, spec=replace(found.spec, max_position_embeddings=longest or _CLIP_TEXT))


def _with_caches(model: PlannedModel, kept: Mapping[str, bool]) -> PlannedModel:
    """`kept` says of stacks whether their attention keeps anything."""
    layers = tuple(
        replace(n, mixers=tuple(_caching(mixer, kept[n.stack]) for mixer in n.mixers))
        if n.stack in kept
        else n
        for n in model.spec.layers
    )
    return replace(model, spec=replace(model.spec, layers=layers))


def _caching(mixer: Mixer, kept: bool) -> Mixer:
    return replace(mixer, cached=kept) if isinstance(mixer, Attention) else mixer


def packs_convolutions(model_type: str) -> bool:
    """Whether convolutions beside attention are kept as windows of a few tokens, in blocks of their
    own (vllm/models/inkling/nvidia/sconv_swa_attn.py)."""
    return model_type in ("inkling_mm_model", "inkling_text")


def is_attention_free(model_type: str) -> bool:
    """Whether vLLM's class is one of recurrent layers alone, which caches no prefixes by default
    (IsAttentionFree of vllm/model_executor/models/interfaces.py)."""
    return model_type in ("mamba", "mamba2", "falcon_mamba")


def default_state(model_type: str, version: Version) -> str | None:
    """The dtype of recurrent state where the config names none; None: as the form of the state has
    it (NemotronHForCausalLMConfig of vllm/model_executor/models/config.py)."""
    if model_type != "nemotron_h" or not version.at_least(0, 13):
        return None
    return "float32" if version.at_least(0, 20) else "float16"


@lru_cache(maxsize=64)
def as_served(model: PlannedModel) -> PlannedModel:
    """With keys and values of every head in place of latents, where vLLM's class keeps those: the
    values as wide as the keys (MiniCPM3Attention of vllm/model_executor/models/minicpm3.py; the
    types that keep latents are named in is_deepseek_mla of
    vllm/transformers_utils/model_arch_config_convertor.py)."""
    if model.spec.model_type != "minicpm3":
        return model
    layers = tuple(replace(n, mixers=tuple(map(_of_heads, n.mixers))) for n in model.spec.layers)
    return replace(model, spec=replace(model.spec, layers=layers))


def _of_heads(mixer: Mixer) -> Mixer:
    if not isinstance(mixer, LatentAttention):
        return mixer
    width = mixer.qk_nope_head_dim + mixer.qk_rope_head_dim
    return Attention(
        hidden_size=mixer.hidden_size,
        num_attention_heads=mixer.num_attention_heads,
        num_key_value_heads=mixer.num_attention_heads,
        head_dim=width,
        v_head_dim=width,
    )


def default_runner_classes(version: Version) -> frozenset[str]:
    """The classes that ran on the V2 runner by default while it was not every model's."""
    known = (names for since, names in _V2_CLASSES if version.at_least(*since))
    return frozenset().union(*known)
