"""Gradient descent on one attention, towards what it should give: q, k, v and o, some of them
tied.

As GPTQ-like layerwise distillation (Puzzle's blockwise local distillation, arXiv 2411.19146): Adam
on the squared error, a step size that falls to 0, the best state on held-out rows is kept. Steps
are relative to the size of each tensor, so that no scale of a model needs another setting.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Protocol

import torch

from ..merge.attention_weights import AttentionWeights

# Of a tensor's root mean square, for the first step.
STEP_SIZE = 0.02
# Steps between two looks at the held-out rows.
_LOOK_EVERY = 20
_TIED = ("k", "v", "k_bias", "v_bias")


class Tying(Protocol):
    """What of an attention is free to change, and the attention that it makes."""

    def free(self, weights: AttentionWeights) -> dict[str, torch.Tensor]:
        """What is free in `weights`, by name: copies that belong to no graph."""

    def tied(self, like: AttentionWeights, free: Mapping[str, torch.Tensor]) -> AttentionWeights:
        """`like` with what `free` makes of it; differentiable."""


@dataclass(frozen=True, slots=True)
class TiedHeads:
    """K/V heads of each run in `groups` are equal."""

    groups: Sequence[int]

    def free(self, weights: AttentionWeights) -> dict[str, torch.Tensor]:
        """Every tensor that is there, of K and V the first head of each run."""
        starts = [sum(self.groups[:j]) for j in range(len(self.groups))]
        firsts = torch.tensor(starts, device=weights.k.device)
        there = ((f.name, getattr(weights, f.name)) for f in fields(weights))
        return {
            name: (value[firsts] if name in _TIED else value).detach().clone()
            for name, value in there
            if value is not None
        }

    def tied(self, like: AttentionWeights, free: Mapping[str, torch.Tensor]) -> AttentionWeights:
        runs = torch.tensor(list(self.groups), device=like.k.device)
        made = {n: p.repeat_interleave(runs, 0) if n in _TIED else p for n, p in free.items()}
        return replace(like, **made)


Loss = Callable[[AttentionWeights, slice], torch.Tensor]


@dataclass(frozen=True, kw_only=True, slots=True)
class Reconstructed:
    """The best weights, and the step that they are of: 0 if none was better than the start."""

    weights: AttentionWeights
    step: int


def reconstruct(
    start: AttentionWeights,
    tying: Tying,
    loss: Loss,
    *,
    fitted: Sequence[slice],
    held: Sequence[slice],
    steps: int,
    seed: int,
) -> Reconstructed:
    """`steps` of Adam on batches of `fitted`, of what `tying` leaves free."""
    free = {n: p.requires_grad_() for n, p in tying.free(start).items()}
    optimizer = torch.optim.Adam(
        [{"params": [p], "lr": STEP_SIZE * size, "size": size} for p, size in _sizes(free)],
        betas=(0.9, 0.99),
    )
    generator = torch.Generator().manual_seed(seed)
    best, least, best_step = start, _mean(loss, start, held), 0
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = STEP_SIZE * group["size"] * (1 - (step - 1) / steps)
        batch = fitted[int(torch.randint(len(fitted), (), generator=generator))]
        optimizer.zero_grad()
        loss(tying.tied(start, free), batch).backward()
        optimizer.step()
        if step % _LOOK_EVERY == 0 or step == steps:
            now = _detached(tying.tied(start, free))
            error = _mean(loss, now, held)
            if error < least:
                best, least, best_step = now, error, step
    return Reconstructed(weights=best, step=best_step)


def _detached(weights: AttentionWeights) -> AttentionWeights:
    values = {f.name: getattr(weights, f.name) for f in fields(weights)}
    return replace(weights, **{n: v.detach().clone() for n, v in values.items() if v is not None})


def _sizes(free: dict[str, torch.Tensor]) -> Iterator[tuple[torch.Tensor, float]]:
    """Each tensor with its root mean square, of a small bias a tenth of its weight's."""
    for name, value in free.items():
        size = float(value.detach().square().mean().sqrt())
        weight = free.get(name.removesuffix("_bias"), value)
        yield value, max(size, float(weight.detach().square().mean().sqrt()) * 0.1)


@torch.no_grad()
def _mean(loss: Loss, weights: AttentionWeights, batches: Sequence[slice]) -> float:
    return sum(float(loss(weights, batch)) for batch in batches) / len(batches)
