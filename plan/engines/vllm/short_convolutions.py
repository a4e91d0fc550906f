"""Convolutions over keys, values and outputs, which vLLM keeps as windows of tokens in blocks of
their own (InklingConvState of vllm/models/inkling/nvidia/sconv_swa_attn.py).

A layer has one cache for its four convolutions: of each K/V head its keys, its values, and its
share of the outputs of attention and of the MLP, of as many tokens as the kernel sees.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from headcount.model.mixers import Attention
from headcount.model.numbers import size

from ...planned_model import PlannedModel
from ..layers import LayerCache, StagedCaches

_KERNEL = 4  # sconv_kernel_size of vllm/models/inkling/configs.py
_ELEMENT_BYTES = 2  # bfloat16 alone is taken


def convolution_windows(model: PlannedModel, found: StagedCaches, tp: int) -> StagedCaches:
    """With such a cache in place of each layer's state."""
    windows = _windows(model, tp)
    caches = tuple(next(windows) if n.kind == "state" else n for n in found.caches)
    return found._replace(caches=caches)


def _windows(model: PlannedModel, tp: int) -> Iterator[LayerCache]:
    kernel = _kernel(model.config)
    for layer in model.spec.layers:
        for mixer in layer.mixers:
            if isinstance(mixer, Attention) and mixer.states:
                heads = max(1, mixer.num_key_value_heads // tp)
                token = heads * _width(mixer) * _ELEMENT_BYTES
                yield LayerCache(
                    kind="sliding", token_bytes=token, window=kernel, block_size=kernel
                )


def _width(mixer: Attention) -> int:
    """Elements of a head, padded to a power of two."""
    outputs = 2 * (mixer.hidden_size // mixer.num_key_value_heads)
    return 1 << (2 * mixer.head_dim + outputs - 1).bit_length()


def _text(config: Mapping[str, object]) -> Mapping[str, object]:
    found = config.get("text_config")
    return found if isinstance(found, Mapping) else config


def _kernel(config: Mapping[str, object]) -> int:
    text = _text(config)
    return size(text.get("sconv_kernel_size")) or size(text.get("conv_kernel_size")) or _KERNEL


def without_windows(model: PlannedModel) -> PlannedModel:
    """Its layers all as those that keep every token, where the config does not name those with a
    window by `local_layer_ids`: vLLM's class of configs reads no other key."""
    if _text(model.config).get("local_layer_ids"):
        return model
    plain = (m for n in model.spec.layers for m in n.mixers if isinstance(m, Attention))
    full = next((mixer for mixer in plain if mixer.window is None), None)
    if full is None:
        return model
    layers = tuple(replace(layer, mixers=(full,)) for layer in model.spec.layers)
    return replace(model, spec=replace(model.spec, layers=layers))
