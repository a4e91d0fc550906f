"""What a tiny model really keeps when it runs: the tensors of its cache, with their dtypes.

Models are built with values and run on the CPU: recurrent kernels look at what they compute.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import nn
from transformers import (
    CONFIG_MAPPING,
    AutoModel,
    AutoModelForCausalLM,
    DynamicCache,
    PreTrainedModel,
)

from headcount.running.built.built_layers import layer_list

_RECURRENT = re.compile(
    r"Mixer$|MambaLayer$|DeltaNet$|DeltaAttention$|(?<!Kimi)LinearAttention$|LightningAttention$"
    r"|ShortConv$|RecurrentBlock$|^RwkvSelfAttention$|^xLSTMLayer$"
)
_ATTENTION = re.compile(r"Attention$|^ZayaAttention$|^XLNetRelativeAttention$")
# Language models that no auto class builds from their own config.
_BARE = {
    "glm5_next_text": "Glm5NextTextModel",
    "hy_v4_vl_text": "HYV4VLTextModel",
    "mistral_large4_text": "MistralLarge4TextModel",
    "unlimited_ocr_text": "UnlimitedOcrTextModel",
}


@dataclass(frozen=True, kw_only=True)
class Kept:
    """One layer's state: its elements by what the cache calls them, and bytes in all."""

    kinds: dict[str, int]
    nbytes: int


def build(config: dict[str, Any], dtype: torch.dtype) -> PreTrainedModel:
    """The causal model of `config`, or of the language model that it nests, on the CPU, with random
    weights of `dtype`."""
    values = dict(config)
    built = CONFIG_MAPPING[values.pop("model_type")].from_dict(values).get_text_config(decoder=True)
    torch.manual_seed(0)
    for auto_class in (AutoModelForCausalLM, AutoModel):
        if type(built) in auto_class._model_mapping:
            make: Any = auto_class.from_config
            break
    else:
        make = getattr(transformers, _BARE[built.model_type])._from_config
    model: PreTrainedModel = make(built, dtype=dtype).eval()
    return model


def written(model: PreTrainedModel) -> dict[str, Any]:
    """The config.json that the model would be saved with."""
    return dict(json.loads(model.config.to_json_string()))


# What the output calls its state where it is not a Cache.
_CACHE_NAMES = {"rwkv": "state", "xlnet": "mems", "reformer": "past_buckets_states"}


def run(model: PreTrainedModel, tokens: int, *, stepwise: int = 0) -> Any:
    """The cache after `tokens` tokens, the last `stepwise` of which were fed one by one."""
    whole = model.config.model_type == "cpmant"  # it wants all ids, and cuts them itself
    ids = torch.arange(tokens)[None] % 29 + 3
    flag = {"xlnet": "use_mems"}.get(model.config.model_type, "use_cache")
    arguments: dict[str, Any] = {flag: True}
    if model.config.model_type == "recurrent_gemma":  # its output does not carry the cache
        arguments["cache"] = DynamicCache(config=model.config)
    cache = None
    with torch.no_grad():
        cuts = [tokens - stepwise, *range(tokens - stepwise + 1, tokens + 1)]
        before = 0
        for cut in cuts:
            if cut == before:
                continue
            output = model(input_ids=ids[:, :cut] if whole else ids[:, before:cut], **arguments)
            name = _CACHE_NAMES.get(model.config.model_type, "cache")
            cache = getattr(output, name, None)
            if cache is None:
                cache = arguments.get(name)
            arguments[name] = cache
            before = cut
    return cache


def layers_of(model: PreTrainedModel) -> nn.ModuleList:
    """The list of layers of the language model nearest to its top."""
    return layer_list(model.get_decoder() if hasattr(model, "get_decoder") else model)


def mixers(layer: nn.Module, prefix: str = "") -> Iterator[tuple[str, str, nn.Module]]:
    """(kind, path, module) of the outermost mixers of a layer: attention or recurrent."""
    for name, child in layer.named_children():
        kind = type(child).__name__
        if _RECURRENT.search(kind):
            yield "recurrent", prefix + name, child
        elif _ATTENTION.search(kind):
            yield "attention", prefix + name, child
        else:
            yield from mixers(child, f"{prefix}{name}.")


def parameters(model: PreTrainedModel) -> list[dict[str, int]]:
    """Per layer the parameters of attention and of recurrent mixers; a shared one counts once."""
    seen: set[int] = set()
    found = []
    for layer in layers_of(model):
        counts = {"attention": 0, "recurrent": 0}
        for kind, _, module in mixers(layer):
            for name, parameter in module.named_parameters():
                old_norm = "layer_norm" in name and kind == "attention"  # of the block, not of q, k
                if id(parameter) not in seen and not old_norm:
                    seen.add(id(parameter))
                    counts[kind] += parameter.numel()
        found.append(counts)
    return found


Named = tuple[str, torch.Tensor]
# What a cache layer holds beside state: its window as a number, positions of indexed tokens.
_BOOKKEEPING = ("_sliding_window_tensor", "indexer_position_ids", "cumulative_length")


def kept(model: PreTrainedModel, cache: Any) -> list[Kept]:
    """What each layer keeps, in the order of the cache's layers."""
    layers = _layers_of_cache(model.config.model_type, cache)
    for i, state in enumerate(getattr(cache, "linear_cache", ())):  # MiniMax
        layers.extend([] for _ in range(i + 1 - len(layers)))
        layers[i] += [("linear_cache", state)] if isinstance(state, torch.Tensor) else []
    if model.config.model_type == "recurrent_gemma":
        for i, layer in enumerate(layers_of(model)):
            layers.extend([] for _ in range(i + 1 - len(layers)))
            layers[i] += [
                (name, value)
                for module in layer.modules()
                for name in ("conv1d_state", "recurrent_states")
                if isinstance(value := getattr(module, name, None), torch.Tensor)
            ]
    return [_measured(found) for found in layers]


def _layers_of_cache(model_type: str, cache: Any) -> list[list[Named]]:
    if isinstance(cache, (list, tuple)) and model_type == "rwkv":  # layers side by side
        count = cache[0].shape[-1]
        return [[("state", tensor[..., i]) for tensor in cache] for i in range(count)]
    if isinstance(cache, (list, tuple)):  # XLNet: one per layer
        return [[("mems", tensor)] for tensor in cache]
    if hasattr(cache, "rnn_state"):  # xLSTM
        states = cache.rnn_state.values()
        return [[("rnn_state", state) for state in layer] for layer in states]
    if hasattr(cache, "states_cache"):  # Reformer
        pairs = zip(cache.states_cache, cache.buckets_cache, strict=False)
        return [[("states", states), ("buckets", buckets)] for states, buckets in pairs]
    return [list(_named_tensors("", layer)) for layer in cache.layers]


def _named_tensors(name: str, value: Any) -> Iterator[Named]:
    """All tensors that a cache layer holds, by the attribute that holds them."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _named_tensors(name, item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _named_tensors(name, item)
    elif hasattr(value, "__dict__"):
        for key, item in vars(value).items():
            if key not in _BOOKKEEPING:
                yield from _named_tensors(key, item)


def _measured(found: list[Named]) -> Kept:
    """A tensor that stands under two names counts once."""
    own = {(t.data_ptr(), t.shape, t.dtype): (n, t) for n, t in reversed(found) if t.numel()}
    kinds: dict[str, int] = {}
    for name, tensor in reversed(own.values()):
        kinds[name] = kinds.get(name, 0) + tensor.numel()
    return Kept(kinds=kinds, nbytes=sum(t.numel() * t.element_size() for _, t in own.values()))
