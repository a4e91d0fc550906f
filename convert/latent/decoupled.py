"""Keys whose position lies in few dimensions (MLA): pure functions on weights and moments.

With rotary embedding the score of a query head at a distance t is the sum over frequencies f of
Re(conj(q_f) k_f exp(-i w_f t)), with each pair of rows that rotate together as a complex number.
Maps between the K heads commute with the rotation within one frequency, so that one complex number
z_f a frequency, k_hf ~ a_hf z_f, can carry the position of all heads: the first principal component
of the heads' k_f, weighted by the energy of the queries that read them. (TransMLA, arXiv
2502.07864, turns by real numbers; complex ones commute, too, and keep more.) What a head has
beside it, r_hf = k_hf - a_hf z_f, is read without a position, at the mean of its rotation: the
least squares fit of its scores over the distances is Re(conj(q_f) r_hf E[exp(-i w_f t)]), where
each query head has its own distances. It goes into the latent with the rows that do not rotate,
and with the values.
"""

from dataclasses import dataclass, replace

import torch

from ..merge.attention_weights import AttentionWeights
from ..merge.freedom import Freedom
from .factors import Factors, low_rank

# Without a text, distances that a query looks back over are taken as often as 1 / (1 + t), up to so
# many tokens: most heads look at what is near.
_FARTHEST = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Decoupled:
    """`rotated` [R, E]: the shared key's rows that rotate, real and imaginary parts in turn, by
    frequency. `query` [H, d + R, E]: what reads the keys without position, then what reads
    `rotated`. `factors`: the latent, and what keys without position [G, d, r] and values are of it.
    `rotated_error`: the share of the keys' energy, as scores weigh it, that loses its rotation."""

    rotated: torch.Tensor
    query: torch.Tensor
    factors: Factors
    rotated_error: float


@torch.no_grad()
def decoupled(
    weights: AttentionWeights,
    freedom: Freedom,
    inputs: torch.Tensor,
    turns: torch.Tensor,
    rank: int,
) -> Decoupled:
    """The attention with a latent of `rank`, for inputs with the second moment `inputs` [E, E].
    `turns` [H, R / 2]: the mean rotation of each query head at each frequency of `freedom`."""
    real, imaginary = list(freedom.real), list(freedom.imaginary)
    second = inputs.to(torch.complex128)
    keys, queries = (_complex(w, real, imaginary) for w in (weights.k, weights.q))
    energy = _energies(queries, second).unflatten(0, (len(keys), -1)).sum(1)
    shared, parts = _shared(keys, energy, second)
    rest = keys - parts[..., None] * shared
    unturned = replace(
        weights,
        k=_rows(rest, weights.k, real, imaginary),
        q=_rows(queries * turns.conj()[..., None], weights.q, real, imaginary),
    )
    turned = queries * parts.conj().repeat_interleave(weights.group_size, 0)[..., None]
    whole = (energy * _energies(keys, second)).sum()
    return Decoupled(
        rotated=_interleaved(shared).to(weights.k.dtype).contiguous(),
        query=torch.cat([unturned.q, _interleaved(turned).to(weights.q.dtype)], 1).contiguous(),
        factors=low_rank(unturned, Freedom(), inputs, rank, like=weights),
        rotated_error=float((energy * _energies(rest, second)).sum() / whole.clamp_min(1e-300)),
    )


def assumed_turns(frequencies: torch.Tensor, heads: int) -> torch.Tensor:
    """[heads, frequencies]: the mean of exp(-i w t) over the distances t that a query is taken to
    look back; `frequencies` w in radians a token."""
    weight = 1 / (1 + torch.arange(_FARTHEST, dtype=torch.float64))
    return mean_turns(frequencies, weight.expand(heads, -1))


def mean_turns(frequencies: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The same for heads that look back t tokens as often as `weight` [heads, t] says."""
    away = torch.arange(weight.shape[1], dtype=torch.float64)
    turns = torch.exp(-1j * frequencies.double()[:, None] * away)
    shares = weight.double() / weight.double().sum(1, keepdim=True).clamp_min(1e-300)
    return shares.to(turns.dtype) @ turns.mT


def distances(mixing: torch.Tensor) -> torch.Tensor:
    """[heads, tokens]: how much attention weights [batch, heads, tokens, tokens] give to what is t
    tokens back."""
    seen = mixing.double().sum(0)
    return torch.stack([seen.diagonal(-t, 1, 2).sum(1) for t in range(seen.shape[-1])], 1)


def _complex(heads: torch.Tensor, real: list[int], imaginary: list[int]) -> torch.Tensor:
    """[heads, R / 2, E] of [heads, d, E]."""
    wide = heads.double()
    return torch.complex(wide[:, real], wide[:, imaginary])


def _rows(
    numbers: torch.Tensor, like: torch.Tensor, real: list[int], imaginary: list[int]
) -> torch.Tensor:
    """`like` with the real and imaginary parts of `numbers` in their rows."""
    made = like.clone()
    made[:, real], made[:, imaginary] = numbers.real.to(like.dtype), numbers.imag.to(like.dtype)
    return made


def _interleaved(numbers: torch.Tensor) -> torch.Tensor:
    """[..., R, E] of [..., R / 2, E]: real and imaginary parts in turn."""
    return torch.stack([numbers.real, numbers.imag], dim=-2).flatten(-3, -2)


def _energies(numbers: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """E |n x|^2 of [..., E]."""
    return ((numbers @ second) * numbers.conj()).sum(-1).real


def _shared(
    keys: torch.Tensor, energy: torch.Tensor, second: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """z [R / 2, E] and a [heads, R / 2] that minimise the sum of energy * E |k - a z|^2."""
    weight = energy.sqrt()
    weight = weight.clamp_min(1e-6 * float(weight.max()) or 1.0)
    heads = (keys * weight[..., None]).transpose(0, 1)
    moments = heads @ second @ heads.mH
    _, vectors = torch.linalg.eigh(moments)
    first = vectors[..., -1]
    shared = (first.conj()[:, None, :] @ heads).squeeze(1)
    return shared, first.T / weight
