"""A source whose pruned heads give nothing: what the result of pruning alone has to compute."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from headcount.model.errors import HeadcountError

from .attention_map.attention_tensors import AttentionTensors
from .calibrate.class_names import ClassNames
from .plan.request import HeadsOfLayers
from .plan.source import ConversionSource


@contextmanager
def masked(
    model: PreTrainedModel, source: ConversionSource, pruned: HeadsOfLayers
) -> Iterator[None]:
    """Inside, the output projections of `model`, which was loaded from `source`, read zeros in
    place of what the query heads `pruned` give. Raises HeadcountError where its class keeps an
    output projection in no module of its own."""
    names = ClassNames(model)
    with ExitStack() as stack:
        for (index, _), tensors in source.attention_map.attentions.items():
            if index in pruned:
                module, count = _output(model, names, tensors, source.label)
                hook = _Zero(count, pruned[index])
                stack.callback(module.register_forward_pre_hook(hook).remove)
        yield


def _output(
    model: PreTrainedModel, names: ClassNames, tensors: AttentionTensors, label: str
) -> tuple[nn.Module, int]:
    """The output projection of an attention, and how many heads it reads."""
    (held,) = (p for p in tensors.projections if "o" in p.parts and not p.is_bias)
    module = names.module_of(model, held.tensor.name)
    if module is None:
        raise HeadcountError(
            f"{label}: its class computes with something else than {held.tensor.name!r}, so that"
            " its heads cannot be masked to compare: leave out --check"
        )
    return module, held.blocks.heads("o")


class _Zero:
    """Forward hook before an output projection that reads `count` heads."""

    def __init__(self, count: int, heads: tuple[int, ...]) -> None:
        self._count, self._heads = count, torch.tensor(heads)

    def __call__(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        heads = args[0].unflatten(-1, (self._count, -1))
        return (heads.index_fill(-2, self._heads, 0).flatten(-2), *args[1:])
