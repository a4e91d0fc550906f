"""What the tensors of a latent attention are called, by those that they are made of."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headcount.arch.low_rank import DOWN_MODULE

from ..attention_map.attention_tensors import AttentionTensors, HeadTensors

if TYPE_CHECKING:  # plans name tensors without torch
    import torch

    from .factors import Factors


def down_name(held: HeadTensors) -> str:
    """The way down to the latent, beside the projection of k."""
    module = held.tensor.name.rpartition(".")[0]
    return f"{module.rpartition('.')[0]}.{DOWN_MODULE}.weight"


def part_name(held: HeadTensors, part: str) -> str:
    """A part of a projection: it keeps the name of one that holds nothing else."""
    if held.parts == (part,):
        return held.tensor.name
    module, _, parameter = held.tensor.name.rpartition(".")
    return f"{module}.{part}.{parameter}"


def key_value_tensors(tensors: AttentionTensors) -> tuple[HeadTensors, ...]:
    """The weights that hold k and v, which the latent and the maps back take the place of."""
    return tuple(held for held in tensors.projections if held.has_key_value and not held.is_bias)


def factor_tensors(tensors: AttentionTensors, factors: "Factors") -> "Mapping[str, torch.Tensor]":
    """The tensors of `factors` by their names in the output: [r, E], [G*d, r] and [G*dv, r]."""
    made: dict[str, torch.Tensor] = {}
    parts = {"k": factors.key, "v": factors.value}
    for held in key_value_tensors(tensors):
        if "k" in held.parts:
            made[down_name(held)] = factors.down
        for part in held.parts:
            if part in parts:
                made[part_name(held, part)] = parts[part].flatten(0, 1).contiguous()
    return made
