"""Which weights learn in which steps, and how fast. Pure functions of the step."""

import math
from dataclasses import dataclass

from torch import nn

from headcount.model.errors import UnsupportedModelError

from .uptrain_request import Decay


@dataclass(frozen=True, kw_only=True, slots=True)
class Phase:
    """The steps `[first, stop)`. `everything`: all weights learn, not only attention and norms."""

    number: int
    first: int
    stop: int
    everything: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class LearningRate:
    """Decays over all `steps`. It rises from 0 during `warmup` steps, and again where a phase
    begins, since the optimizer knows nothing of the new weights' gradients then."""

    peak: float
    steps: int
    warmup: int
    decay: Decay

    def at(self, step: int, phase: Phase) -> float:
        """Of one step, which is counted from 0."""
        rise = min(1.0, (step - phase.first + 1) / (self.warmup + 1))
        left = 1 - step / self.steps
        if self.decay == "cosine":
            left = (1 - math.cos(math.pi * left)) / 2
        return self.peak * rise * left


def phases(steps: int, phase_one: float) -> tuple[Phase, ...]:
    """The phases of `steps` steps, those without any left out."""
    cut = round(steps * phase_one)
    both = (
        Phase(number=1, first=0, stop=cut, everything=False),
        Phase(number=2, first=cut, stop=steps, everything=True),
    )
    return tuple(phase for phase in both if phase.stop > phase.first)


def choose_trainable(model: nn.Module, phase: Phase) -> int:
    """Lets those weights of `model` learn that do in `phase`; how many numbers these are.

    Attention is every module whose class says so in its name, with all that lies in it (GPT-2's
    c_attn, LlamaAttention's q_proj), and norms are modules whose class says that. Raises
    UnsupportedModelError if the model has no attention by that.
    """
    chosen = {id(p) for p in model.parameters()} if phase.everything else _attention(model)
    count = 0
    for parameter in model.parameters():
        learns = id(parameter) in chosen and parameter.is_floating_point()
        parameter.requires_grad_(learns)
        count += parameter.numel() if learns else 0
    return count


def _attention(model: nn.Module) -> set[int]:
    found: set[int] = set()
    norms: set[int] = set()
    for module in model.modules():
        name = type(module).__name__.lower()
        if "attention" in name:
            found |= {id(parameter) for parameter in module.parameters()}
        elif "norm" in name:
            norms |= {id(parameter) for parameter in module.parameters(recurse=False)}
    if not found:
        raise UnsupportedModelError(
            f"{type(model).__name__}: no module of it is called attention: train all weights at"
            " once, with --phase-one 0"
        )
    return found | norms
