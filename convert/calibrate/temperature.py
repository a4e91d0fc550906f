"""How sharp each query head's scores must be to give its attention weights again.

Merged keys that were fitted by least squares, or averaged, tend to give flatter or steeper scores.
tau_h = argmin KL(P_h || P'_h(tau)), P'_h(tau) what the attention gives when W_q,h and its bias are
multiplied by tau: found by golden-section search over log(tau), for all heads at once.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import torch

from ..merge.attention_weights import AttentionWeights
from .placed import CPU

RANGE = (0.25, 4.0)
_STEPS = 16
_GOLDEN = (math.sqrt(5) - 1) / 2

# [H]: the divergence of every head, its queries multiplied by [H].
DivergenceAt = Callable[[torch.Tensor], torch.Tensor]


def best_temperatures(
    divergence: DivergenceAt, heads: int, device: torch.device = CPU
) -> torch.Tensor:
    """[H] in `RANGE`, in float64; 1 for a head that gains nothing."""
    low = torch.full((heads,), math.log(RANGE[0]), dtype=torch.float64, device=device)
    high = torch.full((heads,), math.log(RANGE[1]), dtype=torch.float64, device=device)
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = divergence(left.exp()), divergence(right.exp())
    for _ in range(_STEPS):
        lower = at_left < at_right
        low, high = torch.where(lower, low, left), torch.where(lower, right, high)
        kept = torch.where(lower, left, right)
        kept_value = torch.where(lower, at_left, at_right)
        new = torch.where(lower, high - _GOLDEN * (high - low), low + _GOLDEN * (high - low))
        value = divergence(new.exp())
        left, right = torch.where(lower, new, kept), torch.where(lower, kept, new)
        at_left = torch.where(lower, value, kept_value)
        at_right = torch.where(lower, kept_value, value)
    best = torch.where(at_left < at_right, left, right).exp()
    gains = torch.minimum(at_left, at_right) < divergence(torch.ones_like(best))
    return torch.where(gains, best, torch.ones_like(best))


def with_temperatures(weights: AttentionWeights, scale: torch.Tensor) -> AttentionWeights:
    """`weights` with the queries of each head multiplied by `scale` [H]."""
    factors = scale.to(weights.q.dtype)
    bias = None if weights.q_bias is None else weights.q_bias * factors[:, None]
    return replace(weights, q=weights.q * factors[:, None, None], q_bias=bias)


def divergences(original: torch.Tensor, merged: torch.Tensor) -> torch.Tensor:
    """[H]: mean KL(P || P') over queries, of attention weights [B, H, T, T], in float64."""
    tiny = torch.finfo(torch.float32).tiny
    p, q = original.double(), merged.double()
    terms = torch.where(p > 0, p * (p.clamp_min(tiny).log() - q.clamp_min(tiny).log()), 0.0)
    return terms.sum(-1).mean((0, 2))
