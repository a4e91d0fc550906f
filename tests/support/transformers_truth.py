"""What transformers really builds and caches: the truth that an audit is compared with.

A model is built from the dict of its config.json on the meta device, so that one of any size costs
no memory and no download, and is run there: a cache of meta tensors has shapes like any other.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from torch import nn
from transformers import CONFIG_MAPPING, PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import Cache, EncoderDecoderCache
from transformers.initialization import no_init_weights
from transformers.models.auto import modeling_auto

from shapes_only import shapes_only

# Types whose code lives beside their weights only, with the type here that is the same model.
_SAME_AS = {"kimi_k2": "deepseek_v3"}
_MAPPINGS = ("CAUSAL_LM", "IMAGE_TEXT_TO_TEXT", "SEQ_TO_SEQ_CAUSAL_LM", "MASKED_LM")
_AUTO_CLASSES = (
    *(getattr(modeling_auto, f"MODEL_FOR_{name}_MAPPING") for name in _MAPPINGS),
    modeling_auto.MODEL_MAPPING,
)
_ATTENTION_NAMES = {
    **dict.fromkeys(("self_attn", "attn", "attention", "self_attention", "SelfAttention"), "self"),
    **dict.fromkeys(("encoder_attn", "EncDecAttention", "crossattention", "cross_attn"), "cross"),
}
_LAYER_LISTS = ("layers", "layer", "h", "block", "blocks")
_PARTS = {
    **dict.fromkeys(("q_proj", "q", "query", "q_a_proj", "q_b_proj", "q_lin"), "q"),
    **dict.fromkeys(("k_proj", "k", "key", "k_lin"), "k"),
    **dict.fromkeys(("v_proj", "v", "value", "v_lin"), "v"),
    **dict.fromkeys(("o_proj", "o", "out_proj", "c_proj", "dense", "out_lin"), "o"),
    **dict.fromkeys(("kv_a_proj_with_mqa", "kv_b_proj"), "kv"),
    **dict.fromkeys(("qkv_proj", "query_key_value", "Wqkv", "c_attn", "qkv"), "qkv"),
}


class NotInTransformersError(Exception):
    """The architecture's code comes with its weights: transformers alone cannot build it."""


@dataclass(frozen=True, kw_only=True)
class MixerTruth:
    """An attention module: parameters of its parts q, k, v, o, norm, other, or fused kv, qkv.

    The kv of latent attention (MLA) are its down- and up-projection together.
    """

    kind: str  # self or cross
    parts: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class LayerTruth:
    """One transformer layer of the language model, numbered within its stack."""

    stack: str  # encoder or decoder
    index: int
    mixers: tuple[MixerTruth, ...]


@dataclass(frozen=True, kw_only=True)
class CachedElements:
    """Elements that the default cache holds for each decoder layer."""

    self_attention: list[int] = field(default_factory=list)
    cross_attention: list[int] = field(default_factory=list)


def build_on_meta(config: dict[str, Any]) -> PreTrainedModel:
    """The model that `config` (a config.json) describes, without values.

    It has the first class of `architectures` that transformers has, else the language model of its
    type. Raises NotInTransformersError.
    """
    values = {k: v for k, v in config.items() if k not in ("auto_map", "quantization_config")}
    model_class = _named_class(values)
    model_type = values.pop("model_type", None)
    model_type = _SAME_AS.get(model_type, model_type)
    if model_type is None and model_class is not None:
        model_type = model_class.config_class.model_type
    if model_type not in CONFIG_MAPPING:
        raise NotInTransformersError(f"transformers has no model type {model_type!r}")
    built = CONFIG_MAPPING[model_type].from_dict(values)
    if model_class is None or not isinstance(built, model_class.config_class):
        model_class = _language_model_class(built)
    try:
        return _instantiate(model_class, built)
    except ImportError:  # a vision tower that needs timm: without it, the language model alone
        text = built.get_text_config(decoder=True)
        return _instantiate(_language_model_class(text), text)


def _instantiate(model_class: type[PreTrainedModel], config: PreTrainedConfig) -> PreTrainedModel:
    config._attn_implementation = "eager"
    with torch.device("meta"), no_init_weights():
        model = model_class(config)
    model.tie_weights()
    return model


def _named_class(values: dict[str, Any]) -> Any:
    candidates = (getattr(transformers, name, None) for name in values.get("architectures") or ())
    return next((found for found in candidates if found is not None), None)


def _language_model_class(config: PreTrainedConfig) -> Any:
    found = next((mapping for mapping in _AUTO_CLASSES if type(config) in mapping), None)
    if found is not None:
        return found[type(config)]
    raise NotInTransformersError(f"transformers has no model for {type(config).__name__}")


def total_parameters(model: nn.Module) -> int:
    """Parameters of the whole model, each shared one once."""
    return sum(parameter.numel() for parameter in model.parameters())


def attention_parameters(model: PreTrainedModel) -> list[LayerTruth]:
    """The attention parameters of each layer of the language model, encoder first."""
    return [
        LayerTruth(stack=name, index=index, mixers=tuple(_mixers(layer)))
        for name, stack in _stacks(model)
        for index, layer in enumerate(_layers(stack))
    ]


def _stacks(model: PreTrainedModel) -> Iterator[tuple[str, nn.Module]]:
    if model.config.is_encoder_decoder:
        yield "encoder", model.get_encoder()
        yield "decoder", model.get_decoder()
    elif _is_encoder(model):
        yield "encoder", model.get_decoder()
    else:
        yield "decoder", model.get_decoder()


def _is_encoder(model: PreTrainedModel) -> bool:
    """Whether the model never caches: BERT families, ViT, CLIP."""
    causal = type(model).__name__.endswith(
        ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")
    )
    return not causal and model.config.model_type in ("bert", "roberta", "vit", "clip")


def _layers(stack: nn.Module) -> nn.ModuleList:
    """The list of layers nearest to the top of `stack`."""
    level = [stack]
    while level:
        for module in level:
            for name, child in module.named_children():
                if name in _LAYER_LISTS and isinstance(child, nn.ModuleList):
                    return child
        level = [child for module in level for child in module.children()]
    raise LookupError(f"no list of layers in {type(stack).__name__}")


def _mixers(layer: nn.Module) -> Iterator[MixerTruth]:
    """The outermost modules of `layer` that are called attention, in order."""
    for name, child in layer.named_children():
        kind = _ATTENTION_NAMES.get(name)
        if kind is not None:
            yield MixerTruth(kind=kind, parts=_parts(child))
        else:
            yield from _mixers(child)


def _parts(attention: nn.Module) -> dict[str, int]:
    parts: dict[str, int] = {}
    for name, parameter in attention.named_parameters():
        if not name.startswith("output.LayerNorm"):  # BERT's: it normalises the residual stream
            part = _part_of(name)
            parts[part] = parts.get(part, 0) + parameter.numel()
    return parts


def _part_of(name: str) -> str:
    pieces = name.split(".")
    if "norm" in name.lower():
        return "norm"
    return next((_PARTS[piece] for piece in pieces if piece in _PARTS), "other")


def cached_elements(
    model: PreTrainedModel | dict[str, Any],
    tokens: int,
    *,
    batch: int = 1,
    encoder_tokens: int | None = None,
) -> CachedElements:
    """What the default cache holds after `tokens` tokens, counted in elements.

    `encoder_tokens` is the length that cross-attention sees: of the encoder's output, or of the
    vision states that mllama's layers read.
    """
    if isinstance(model, dict):
        model = build_on_meta(model)
    if _is_encoder(model):
        return CachedElements()
    decoder = model.get_decoder()
    arguments: dict[str, Any] = {}
    if encoder_tokens is not None:
        width = model.config.get_text_config(decoder=True).hidden_size
        states = torch.empty(batch, encoder_tokens, width, device="meta", dtype=model.dtype)
        encoder_decoder = model.config.is_encoder_decoder
        arguments["encoder_hidden_states" if encoder_decoder else "cross_attention_states"] = states
    input_ids = torch.zeros(batch, tokens, dtype=torch.long, device="meta")
    with torch.no_grad(), shapes_only(model):
        output = decoder(input_ids=input_ids, use_cache=True, **arguments)
    return _count(output.cache, _layers(decoder))


def _count(cache: Cache, layers: nn.ModuleList) -> CachedElements:
    if isinstance(cache, EncoderDecoderCache):
        return CachedElements(
            self_attention=_elements(cache.self_attention_cache, len(layers)),
            cross_attention=_elements(cache.cross_attention_cache, len(layers)),
        )
    held = _elements(cache, len(layers))
    crossing = [all(mixer.kind == "cross" for mixer in _mixers(layer)) for layer in layers]
    return CachedElements(
        self_attention=[0 if cross else count for cross, count in zip(crossing, held, strict=True)],
        cross_attention=[
            count if cross else 0 for cross, count in zip(crossing, held, strict=True)
        ],
    )


def _elements(cache: Cache, layers: int) -> list[int]:
    """Elements of each layer; a layer that reads another's cache has none of its own."""
    held = [_layer_elements(layer) for layer in cache.layers]
    return held + [0] * (layers - len(held))


def _layer_elements(layer: Any) -> int:
    names = ("keys", "values", "indexer_keys", "conv_states", "recurrent_states")
    tensors = (getattr(layer, name, None) for name in names)
    return sum(tensor.numel() for tensor in tensors if isinstance(tensor, torch.Tensor))
