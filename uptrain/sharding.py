"""Weights, gradients and optimizer that are shared by processes: torch's FSDP2, layer by layer.

torch.distributed.fsdp.fully_shard keeps of every parameter the rows that a process has of
`torch.chunk` along the first dimension, gathers those of a layer when it runs, and hands gradients
back as the mean over the processes (https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html).
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard

from headcount.model.errors import UnsupportedModelError


@dataclass(frozen=True, kw_only=True, slots=True)
class Sharding:
    """How a module is shared: by the processes of `mesh`, gathered in `dtype` if it learns;
    `reshard`: what was gathered for a forward is let go, and gathered again for the backward."""

    mesh: DeviceMesh
    dtype: torch.dtype
    reshard: bool

    def shard(self, module: nn.Module) -> nn.Module:
        """`module`, of whose parameters each process now has its share, on its device. Raises
        UnsupportedModelError."""
        single = [name for name, found in module.named_parameters() if found.dim() == 0]
        if single:
            raise UnsupportedModelError(
                f"parameter {single[0]!r} is a single number, of which FSDP2 makes no shares: train"
                " with whole weights in each process, without --shard"
            )
        policy = MixedPrecisionPolicy()  # as loaded: some weights of the original may be float32
        if any(parameter.requires_grad for parameter in module.parameters()):
            policy = MixedPrecisionPolicy(param_dtype=self.dtype, reduce_dtype=torch.float32)
        for part in [*layer_units(module), module]:
            fully_shard(part, mesh=self.mesh, reshard_after_forward=self.reshard, mp_policy=policy)
        return module


def let_go(module: nn.Module) -> None:
    """Leaves each process with its share alone, also after a forward without a backward."""
    for part in module.modules():
        if isinstance(part, FSDPModule):
            part.reshard()


def layer_units(module: nn.Module) -> list[nn.Module]:
    """What is gathered at a time: the layers that transformers never splits, the inner ones first.

    A layer that shares a parameter with what lies outside of it is none, so that its parameters
    stay with those of the whole.
    """
    unsplit = {
        name for m in module.modules() for name in (getattr(m, "_no_split_modules", None) or ())
    }
    layers = [m for m in module.modules() if type(m).__name__ in unsplit and m is not module]
    uses = _uses(module)
    return [
        layer
        for layer in reversed(layers)
        if all(uses[place] == count for place, count in _uses(layer).items())
    ]


def _uses(module: nn.Module) -> dict[int, int]:
    """How often each parameter has a place in a module."""
    found: dict[int, int] = {}
    for _, parameter in module.named_parameters(remove_duplicate=False):
        found[id(parameter)] = found.get(id(parameter), 0) + 1
    return found


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor, whoever has a part of it; all processes ask together."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def own_rows(tensor: Tensor) -> slice | None:
    """Which rows of a shared tensor this process has; None for one that is here as a whole."""
    if not isinstance(tensor, DTensor):
        return None
    assert tuple(tensor.placements) == (Shard(0),)
    rows, count = tensor.shape[0], tensor.device_mesh.size()
    each = -(-rows // count)
    first = min(tensor.device_mesh.get_local_rank() * each, rows)
    return slice(first, min(first + each, rows))


def local(tensor: Tensor) -> Tensor:
    """What of a tensor lies in this process, to be read and written."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
