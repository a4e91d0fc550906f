"""What transformers' default cache holds after a run on the meta device, counted in elements."""

from collections.abc import Iterator
from inspect import signature
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import EncoderDecoderCache

from .built_layers import decoder_of, layer_list, mixers_of
from .shapes_only import shapes_only

_WIDTHS = ("cross_attention_hidden_size", "encoder_hidden_size")
# What a cache layer holds beside state: its window as a number, positions of indexed tokens.
_BOOKKEEPING = ("_sliding_window_tensor", "indexer_position_ids", "cumulative_length")


class CachedElements(NamedTuple):
    """Elements that the default cache holds for each decoder layer."""

    self_attention: list[int]
    cross_attention: list[int]

    def total(self, layers: int) -> list[int]:
        """Of both, for `layers` layers. A cache may have empty ones too many, or too few, where a
        layer reads another's."""
        length = max(layers, len(self.self_attention), len(self.cross_attention))
        full = [[*held, *(0,) * (length - len(held))] for held in self]
        held = [a + b for a, b in zip(*full, strict=True)]
        return held if any(held[layers:]) else held[:layers]


def cached_elements(
    model: PreTrainedModel, tokens: int, *, encoder_tokens: int | None = None
) -> CachedElements:
    """What the default cache holds after `tokens` tokens were given at once.

    `encoder_tokens` is the length that cross-attention sees: of the encoder's output, or of the
    vision states that Llama 3.2 Vision's layers read. Raises what the model's own code raises, and
    LookupError for a model that makes no cache object.
    """
    decoder = decoder_of(model)
    arguments = _encoder_states(model, encoder_tokens) if encoder_tokens else {}
    ids = torch.zeros(1, tokens, dtype=torch.long, device="meta")
    with torch.no_grad(), torch.device("meta"), shapes_only(model):
        output = decoder(input_ids=ids, use_cache=True, **arguments)
    cache = output.get("cache") if "cache" in output else output.get("past_key_values")
    if not hasattr(cache, "layers") and not isinstance(cache, EncoderDecoderCache):
        raise LookupError(f"{type(decoder).__name__} returns no cache object")
    return _count(cache, decoder)


def _encoder_states(model: PreTrainedModel, tokens: int) -> dict[str, Any]:
    decoder = decoder_of(model)
    config = getattr(decoder, "config", model.config)
    sizes = (getattr(config, key, None) for key in _WIDTHS)
    width = next((size for size in sizes if isinstance(size, int)), None)
    if width is None:
        width = config.get_text_config(decoder=True).hidden_size
    states = torch.empty(1, tokens, width, device="meta", dtype=model.dtype)
    known = signature(decoder.forward).parameters
    name = (
        "cross_attention_states" if "cross_attention_states" in known else "encoder_hidden_states"
    )
    return {name: states}


def _count(cache: Any, decoder: torch.nn.Module) -> CachedElements:
    if isinstance(cache, EncoderDecoderCache):
        return CachedElements(
            [_elements(layer) for layer in cache.self_attention_cache.layers],
            [_elements(layer) for layer in cache.cross_attention_cache.layers],
        )
    layers = layer_list(decoder)
    held = [_elements(layer) for layer in cache.layers]
    held += [0] * (len(layers) - len(held))
    for index, state in enumerate(getattr(cache, "linear_cache", ())):  # MiniMax
        held[index] += _elements(state)
    crossing = [_only_crosses(layer) for layer in layers]
    crossing += [False] * (len(held) - len(crossing))
    pairs = list(zip(crossing, held, strict=True))
    return CachedElements(
        [0 if cross else count for cross, count in pairs],
        [count if cross else 0 for cross, count in pairs],
    )


def _only_crosses(layer: torch.nn.Module) -> bool:
    kinds = {mixer.kind for mixer in mixers_of(layer)}
    return kinds == {"cross"}


def _elements(state: Any) -> int:
    """Elements of all tensors of one layer's state, each once."""
    return sum({id(tensor): tensor.numel() for tensor in tensors_in(state)}.values())


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """All tensors that a cache layer, or a collection of them, holds as state."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
    elif hasattr(value, "__dict__"):
        yield from tensors_in({k: v for k, v in vars(value).items() if k not in _BOOKKEEPING})
