"""Run a model's decoder for the shapes of its cache alone, on the meta device.

Meta tensors have no values for routers and masks to look at, and each operation on them costs as
much as a small real one. So what neither reads nor writes the cache passes its input through: only
the projections, the reshaping of heads and the cache's own code remain.
"""

import inspect
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any

import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import eager_mask

from ..replaced import replaced

_NAME = "shapes_only"
_MASKED = "shapes_only_masked"


@contextmanager
def shapes_only(model: PreTrainedModel) -> Iterator[None]:
    """Norms, MLPs, experts, rotations and attention scores of `model` are passed by within."""
    decoder, before = model.get_decoder(), model.config._attn_implementation
    code = sys.modules[type(decoder).__module__]
    rotations = _rotations(code)
    stand_ins = {_pass_by: [module for module in decoder.modules() if _is_passed_by(module)]}
    if rotations:
        stand_ins[_no_angles] = [module for module in decoder.modules() if _is_rotary(module)]
    with ExitStack() as stack:
        for function in rotations:
            stack.enter_context(replaced(code, function, _unrotated))
        for stand_in, modules in stand_ins.items():
            for module_class in {type(module) for module in modules}:
                stack.enter_context(replaced(module_class, "forward", stand_in))
        if decoder._supports_attention_backend:  # others compute their scores themselves
            stack.callback(setattr, model.config, "_attn_implementation", before)
            model.config._attn_implementation = _MASKED if _has_indexer(decoder) else _NAME
        yield


def _has_indexer(decoder: nn.Module) -> bool:
    """Whether a layer chooses the tokens that it attends to: that code looks at the mask."""
    return any(type(module).__name__.endswith("Indexer") for module in decoder.modules())


def _rotations(code: ModuleType) -> list[str]:
    """Names of the functions of a modelling file that rotate q and k, and return both."""
    named = ((name, getattr(code, name)) for name in dir(code) if name.startswith("apply_rotary"))
    return [
        name for name, found in named if [*inspect.signature(found).parameters][:2] == ["q", "k"]
    ]


def _is_passed_by(module: nn.Module) -> bool:
    """Norms, experts and plain MLPs; an MLP with experts returns more than its hidden states."""
    name = type(module).__name__
    if name.endswith("MLP"):
        return not any(type(child).__name__.endswith("Experts") for child in module.children())
    return name.endswith(("Norm", "Experts")) and not name.endswith("AttentionNorm")


def _is_rotary(module: nn.Module) -> bool:
    return type(module).__name__.endswith("RotaryEmbedding")


def _pass_by(module: nn.Module, hidden_states: torch.Tensor, *_: Any, **__: Any) -> Any:
    return hidden_states


def _no_angles(module: nn.Module, hidden_states: torch.Tensor, *_: Any, **__: Any) -> Any:
    return hidden_states, hidden_states


def _unrotated(q: torch.Tensor, k: torch.Tensor, *_: Any, **__: Any) -> Any:
    return q, k


def _attend(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *_: Any,
    **__: Any,
) -> tuple[torch.Tensor, None]:
    """The shape of attention's output: (batch, tokens, query heads, value width)."""
    batch, heads, tokens, _width = query.shape
    return query.new_empty(batch, tokens, heads, value.shape[-1]), None


AttentionInterface.register(_NAME, _attend)
AttentionInterface.register(_MASKED, _attend)
AttentionMaskInterface.register(_MASKED, eager_mask)
