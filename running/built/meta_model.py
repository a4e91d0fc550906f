"""Building on the meta device: the model of a config of any size costs no memory and no download.

Only transformers' own classes are built. Nothing in here reads a table of the audit, so what is
built can serve as the truth about it.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import transformers
from huggingface_hub import constants
from torch import nn
from transformers import CONFIG_MAPPING, PreTrainedConfig, PreTrainedModel
from transformers.initialization import no_init_weights
from transformers.models.auto import modeling_auto

from headcount.model.errors import UnsupportedModelError, short

from ..replaced import replaced

_MAPPINGS = ("CAUSAL_LM", "IMAGE_TEXT_TO_TEXT", "SEQ_TO_SEQ_CAUSAL_LM", "MASKED_LM")
_AUTO_CLASSES = (
    *(getattr(modeling_auto, f"MODEL_FOR_{name}_MAPPING") for name in _MAPPINGS),
    modeling_auto.MODEL_MAPPING,
)
_SEQ_TO_SEQ = (
    modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
    modeling_auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING,
)
# What names code or kernels to fetch, a folder to read, or how the weights are packed.
_DROPPED = (
    *("auto_map", "quantization_config", "compression_config", "trust_remote_code"),
    *("_name_or_path", "name_or_path", "_attn_implementation_internal", "_attn_implementation"),
    *("attn_implementation", "_experts_implementation", "_experts_implementation_internal"),
    *("experts_implementation", "use_pretrained_backbone", "backbone_kwargs"),
)

_FLOATS = {name: float(name) for name in ("Infinity", "-Infinity", "NaN")}


class NotInTransformersError(UnsupportedModelError):
    """The architecture's code comes with its weights: transformers alone cannot build it."""


def build_on_meta(config: Mapping[str, Any], *, read_as: str | None = None) -> PreTrainedModel:
    """The model that `config` (a config.json) describes, without values.

    It has the first class of `architectures` that transformers has, else the language model of its
    type. `read_as` is the type whose class reads it, where transformers lacks its own. Raises
    NotInTransformersError, and what transformers raises for a config it cannot use.
    """
    values = decoded(without_code(config))
    model_class = _named_class(values)
    model_type = values.pop("model_type", None)
    if model_type is None and model_class is not None:
        model_type = model_class.config_class.model_type
    if model_type not in CONFIG_MAPPING and read_as is not None:
        model_type = read_as
    if model_type not in CONFIG_MAPPING:
        code = ": its code comes with its weights, and is never run" if "auto_map" in config else ""
        raise NotInTransformersError(f"transformers has no model_type {short(model_type)}{code}")
    with _offline():
        built = CONFIG_MAPPING[model_type].from_dict(values)
        if model_class is None or not isinstance(built, model_class.config_class):
            model_class = _language_model_class(built)
        try:
            return _instantiate(model_class, built)
        except ImportError:  # a vision tower that needs timm: the language model alone
            text = built.get_text_config(decoder=True)
            return _instantiate(_language_model_class(text), text)


def without_code(value: Any) -> Any:
    """A config without the keys, at any depth, that could make transformers fetch something."""
    if isinstance(value, Mapping):
        return {key: without_code(item) for key, item in value.items() if key not in _DROPPED}
    return [without_code(item) for item in value] if isinstance(value, list) else value


def decoded(value: Any) -> Any:
    """A config in which infinity and NaN, as transformers writes them, are numbers again."""
    if isinstance(value, Mapping):
        tag = value.get("__float__") if len(value) == 1 else None
        known = _FLOATS.get(tag) if isinstance(tag, str) else None
        return {k: decoded(v) for k, v in value.items()} if known is None else known
    return [decoded(item) for item in value] if isinstance(value, list) else value


def total_parameters(model: nn.Module) -> int:
    """Parameters of the whole model, each shared one once."""
    return sum(parameter.numel() for parameter in model.parameters())


@contextmanager
def _offline() -> Iterator[None]:
    """huggingface_hub refuses every request within."""
    with replaced(constants, "HF_HUB_OFFLINE", True):
        yield


def _instantiate(model_class: Any, config: PreTrainedConfig) -> PreTrainedModel:
    config._attn_implementation = "eager"
    with torch.device("meta"), no_init_weights():
        model: PreTrainedModel = model_class(config)
    model.tie_weights()
    model.eval()
    return model


def _named_class(values: Mapping[str, Any]) -> Any:
    """The first of `architectures` that is a model of transformers; other names mean nothing."""
    names = values.get("architectures")
    for name in names if isinstance(names, list) else ():
        found = getattr(transformers, name, None) if isinstance(name, str) else None
        if isinstance(found, type) and issubclass(found, PreTrainedModel) and found.config_class:
            return found
    return None


def _language_model_class(config: PreTrainedConfig) -> Any:
    """Of an encoder-decoder the class with both, though its decoder alone is a causal model."""
    whole = _SEQ_TO_SEQ if config.is_encoder_decoder else ()
    mappings = (*whole, *_AUTO_CLASSES)
    found = next((mapping for mapping in mappings if type(config) in mapping), None)
    if found is not None:
        return found[type(config)]
    raise NotInTransformersError(f"transformers has no model for {type(config).__name__}")
