"""What transformers builds and caches for a tiny config, run for real on the CPU.

Only the language model of a multimodal config is built: the wrapper builds the same one.
"""

import importlib
import json
from typing import Any

import torch
import transformers
from transformers import CONFIG_MAPPING, PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.initialization import no_init_weights
from transformers.models.auto import modeling_auto

from headcount.running.built.built_layers import decoder_of
from transformers_truth import CachedElements

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()

_KINDS = ("CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "IMAGE_TEXT_TO_TEXT", "MASKED_LM")
_MAPPINGS = (
    *(getattr(modeling_auto, f"MODEL_FOR_{kind}_MAPPING") for kind in _KINDS),
    modeling_auto.MODEL_MAPPING,
)

# Types whose attention modules do not stand in one list of layers.
SCATTERED = (
    *("blt", "funnel", "idefics", "perceiver"),
    *("donut-swin", "maskformer-swin", "swin", "swinv2"),
)


def written(config: PreTrainedConfig, *, whole: bool = False) -> dict[str, Any]:
    """The config.json that save_pretrained would write, or the `whole` of what the config holds."""
    return dict(json.loads(config.to_json_string(use_diff=not whole)))


def read(config: dict[str, Any]) -> PreTrainedConfig:
    values = dict(config)
    built = CONFIG_MAPPING[values.pop("model_type")].from_dict(values)
    assert isinstance(built, PreTrainedConfig)
    return built


TASKS = {
    "causal": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING,
    "seq2seq": modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
    "image_text": modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    "masked": modeling_auto.MODEL_FOR_MASKED_LM_MAPPING,
    "base": modeling_auto.MODEL_MAPPING,
}


def build(config: PreTrainedConfig, task: str) -> PreTrainedModel:
    """The model of `config` for `task`, with uninitialised weights; of a multimodal config the
    language model alone but for the task `base`."""
    text = config
    if task == "base":
        return whole(config, task)
    nested = getattr(config, "vlm_config", None) or getattr(config, "text_config", None)
    if nested is not None:
        text = nested if nested.is_encoder_decoder else nested.get_text_config(decoder=True)
    elif task == "causal" or not config.is_encoder_decoder:
        text = config.get_text_config(decoder=True)
    return _instance(class_of(text, task), text)


def whole(config: PreTrainedConfig, task: str) -> PreTrainedModel:
    """The model of `config` for `task` with everything that it nests."""
    return _instance(class_of(config, task), config)


def _instance(model_class: type[PreTrainedModel], config: PreTrainedConfig) -> PreTrainedModel:
    config._attn_implementation = "eager"
    with no_init_weights():
        model: PreTrainedModel = model_class(config).eval()
    return model


def class_of(config: PreTrainedConfig, task: str) -> Any:
    """The class that builds `config` for `task`, else for another one; a language model that no
    mapping names is looked for in the module of its config."""
    rest = ("seq2seq", "base") if config.is_encoder_decoder else TASKS
    order = [task, *rest]
    found = [known for name in order if (known := _known(TASKS[name], config)) is not None]
    if found:
        return found[0][0] if isinstance(found[0], tuple) else found[0]
    name = type(config).__module__.replace(".configuration_", ".modeling_")
    classes = [
        value
        for value in vars(importlib.import_module(name)).values()
        if isinstance(value, type)
        and issubclass(value, PreTrainedModel)
        and value.config_class is type(config)
    ]
    return max(classes, key=lambda found: _rank(found.__name__))


def _known(mapping: Any, config: PreTrainedConfig) -> Any:
    try:
        return mapping[type(config)]
    except (KeyError, ValueError):  # ValueError: the mapping names a class that does not exist
        return None


def _rank(name: str) -> int:
    endings = ("ForCausalLM", "PreTrainedModel", "TextModel", "Model")
    found = next((i for i, ending in enumerate(endings) if name.endswith(ending)), 9)
    return -(9 if found == 1 else found)


# What they are given of an encoder is in the cache from the first call on; they would add it again.
_SEE_ONCE = ("mllama_text_model", "musicgen_melody_decoder")
_WIDTHS = ("cross_attention_hidden_size", "encoder_hidden_size")


def cached(
    model: PreTrainedModel, tokens: int, encoder_tokens: int = 0, *, decoded: int = 0
) -> CachedElements:
    """Elements that the default cache holds in each layer after `tokens` tokens, of which the last
    `decoded` came one by one."""
    decoder = model if model.config.model_type in SCATTERED else decoder_of(model)
    config = getattr(decoder, "config", model.config)
    if config.model_type in ("funnel", "perceiver"):
        model(input_ids=_ids(config, tokens))  # has nothing to keep, and no argument that asks
        return CachedElements([], [])
    if getattr(config, "num_kv_shared_layers", 0) == getattr(config, "num_hidden_layers", None):
        return CachedElements([], [])  # reads the cache of another model
    if config.model_type == "fsmt":  # its decoder asks for masks that the model makes
        decoder, arguments = model, {"input_ids": _ids(config, encoder_tokens)}
        ids = "decoder_input_ids"
    else:
        arguments, ids = _arguments(config, encoder_tokens), "input_ids"
    with torch.no_grad():
        for new in (tokens - decoded, *[1] * decoded):
            if config.model_type == "idefics":  # a token sees the one image
                arguments["image_attention_mask"] = torch.ones(1, new, 1)
            output = decoder(**{ids: _ids(config, new)}, use_cache=True, **arguments)
            arguments["cache"] = cache_of(output)
            if config.model_type in _SEE_ONCE:
                arguments.pop("encoder_hidden_states", None)
                arguments.pop("cross_attention_states", None)
    held = count(arguments["cache"])
    if config.model_type == "blt":  # not of one layer: the encoder's, then the decoder's
        return CachedElements([*held.self_attention, *held.cross_attention], [])
    return held


def cache_of(output: Any) -> Any:
    return output.get("cache") if "cache" in output else output.get("past_key_values")


def _ids(config: PreTrainedConfig, tokens: int) -> torch.Tensor:
    if config.model_type == "kyutai_speech_to_text":
        return torch.full((1, tokens, config.num_codebooks + 1), 5)
    codebooks = getattr(config, "num_codebooks", 1) if "musicgen" in config.model_type else 1
    return torch.full((codebooks, tokens), 5)


def _arguments(config: PreTrainedConfig, encoder_tokens: int) -> dict[str, Any]:
    """What a decoder takes beside tokens: the encoder's output, and oddities of some classes."""
    arguments: dict[str, Any] = {}
    if config.model_type == "granite4_vision_text":  # makes no cache by itself
        arguments["cache"] = DynamicCache(config=config)
    if config.model_type == "blt":  # its config, from which a cache would be made, has no layers
        arguments["cache"] = EncoderDecoderCache(DynamicCache(), DynamicCache())
    if config.model_type == "idefics":
        width = config.vision_config.embed_dim
        arguments["image_encoder_embeddings"] = torch.randn(1, 3, width)
    if config.model_type == "blip_text_model":
        arguments["is_decoder"] = config.is_decoder
    if config.model_type == "voxtral_realtime_text":
        arguments["t_cond"] = torch.randn(1, 1, config.hidden_size)
    if encoder_tokens:
        width = next(
            (size for key in _WIDTHS if (size := getattr(config, key, None)) is not None),
            config.get_text_config(decoder=True).hidden_size,
        )
        key = "cross_attention_states" if "mllama" in config.model_type else "encoder_hidden_states"
        arguments[key] = torch.randn(1, encoder_tokens, width)
    return arguments


def count(cache: Any) -> CachedElements:
    if isinstance(cache, EncoderDecoderCache):
        return CachedElements(
            elements(cache.self_attention_cache), elements(cache.cross_attention_cache)
        )
    return CachedElements(elements(cache) if cache is not None else [], [])


def elements(cache: Cache) -> list[int]:
    return [
        sum(
            t.numel()
            for name in ("keys", "values", "indexer_keys", "conv_states", "recurrent_states")
            if isinstance(t := getattr(layer, name, None), torch.Tensor)
        )
        for layer in cache.layers
    ]
