"""What AdamW remembers of every weight that learns, in a file beside the weights."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from headcount.running.team import Team

from .state_file import read_tensors, tensor_names, write_tensors

_MOMENTS = ("exp_avg", "exp_avg_sq")
_STEP = "step"  # how many gradients there were


def write_optimizer(
    optimizer: torch.optim.AdamW, learning: Mapping[str, nn.Parameter], path: Path, team: Team
) -> None:
    """Writes `path` for all processes, which call it together. Raises OSError."""
    write_tensors(_named(optimizer, learning), path, team)


def read_optimizer(
    optimizer: torch.optim.AdamW, learning: Mapping[str, nn.Parameter], path: Path
) -> None:
    """Makes `optimizer`, which has made no step, go on from what `write_optimizer` wrote. Raises
    HeadcountError."""
    begun = {name.removesuffix(f".{_STEP}") for name in tensor_names(path)}
    for name, parameter in learning.items():
        if name in begun:  # the others have had no gradient
            moments = {moment: torch.zeros_like(parameter) for moment in _MOMENTS}
            optimizer.state[parameter] = {_STEP: torch.zeros(()), **moments}
    read_tensors(path, _named(optimizer, learning))


def _named(optimizer: torch.optim.AdamW, learning: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    return {
        f"{name}.{key}": optimizer.state[parameter][key]
        for name, parameter in learning.items()
        if parameter in optimizer.state
        for key in (_STEP, *_MOMENTS)
    }
