"""Gradient descent on one attention, towards what it should give: q, k, v and o of tied heads.

As GPTQ-like layerwise distillation (Puzzle's blockwise local distillation, arXiv 2411.19146): Adam
on the squared error, a step size that falls to 0, the best state on held-out rows is kept. Steps
are relative to the size of each tensor, so that no scale of a model needs another setting.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace

import torch

from ..merge.attention_weights import AttentionWeights

# Of a tensor's root mean square, for the first step.
STEP_SIZE = 0.02
# Steps between two looks at the held-out rows.
_LOOK_EVERY = 20
_TIED = ("k", "v", "k_bias", "v_bias")

Loss = Callable[[AttentionWeights, slice], torch.Tensor]


@dataclass(frozen=True, kw_only=True, slots=True)
class Reconstructed:
    """The best weights, and the step that they are of: 0 if none was better than the start."""

    weights: AttentionWeights
    step: int


def reconstruct(
    start: AttentionWeights,
    groups: Sequence[int],
    loss: Loss,
    *,
    fitted: Sequence[slice],
    held: Sequence[slice],
    steps: int,
    seed: int,
) -> Reconstructed:
    """`steps` of Adam on batches of `fitted`, K/V heads of each run in `groups` kept equal."""
    free = {n: p.requires_grad_() for n, p in _untied(start, groups).items()}
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
        loss(_tied(start, free, groups), batch).backward()
        optimizer.step()
        if step % _LOOK_EVERY == 0 or step == steps:
            now = _detached(_tied(start, free, groups))
            error = _mean(loss, now, held)
            if error < least:
                best, least, best_step = now, error, step
    return Reconstructed(weights=best, step=best_step)


def _untied(weights: AttentionWeights, groups: Sequence[int]) -> dict[str, torch.Tensor]:
    """What is free: every tensor that is there, of K and V the first head of each run."""
    firsts = torch.tensor([sum(groups[:j]) for j in range(len(groups))])
    free = {}
    for field in fields(weights):
        value = getattr(weights, field.name)
        if value is not None:
            free[field.name] = (value[firsts] if field.name in _TIED else value).detach().clone()
    return free


def _tied(
    like: AttentionWeights, free: dict[str, torch.Tensor], groups: Sequence[int]
) -> AttentionWeights:
    runs = torch.tensor(list(groups))
    return replace(
        like,
        **{n: p.repeat_interleave(runs, 0) if n in _TIED else p for n, p in free.items()},
    )


def _detached(weights: AttentionWeights) -> AttentionWeights:
    values = {f.name: getattr(weights, f.name) for f in fields(weights)}
    return replace(weights, **{n: v.detach().clone() for n, v in values.items() if v is not None})


def _sizes(free: dict[str, torch.Tensor]) -> Iterator[tuple[torch.Tensor, float]]:
    """Each tensor with its root mean square, of a small bias a tenth of its weight's."""
    for name, value in free.items():
        size = float(value.detach().square().mean().sqrt())
        weight = free[name.removesuffix("_bias")]
        yield value, max(size, float(weight.detach().square().mean().sqrt()) * 0.1)


@torch.no_grad()
def _mean(loss: Loss, weights: AttentionWeights, batches: Sequence[slice]) -> float:
    return sum(float(loss(weights, batch)) for batch in batches) / len(batches)
