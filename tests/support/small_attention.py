"""A hand-written attention in numpy's manner, and random weights for it, to hold merging to."""

from dataclasses import dataclass

import torch

from headcount.convert.merge.attention_weights import AttentionWeights, Moments
from headcount.convert.merge.freedom import Freedom


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Of an attention: `rotated` rows of every head turn, in halves or in neighbours."""

    heads: int = 4
    kv_heads: int = 4
    head_dim: int = 6
    v_head_dim: int = 6
    hidden: int = 20
    rotated: int = 0
    interleaved: bool = False
    bias: bool = False

    @property
    def freedom(self) -> Freedom:
        rows = range(self.rotated)
        half = self.rotated // 2
        real, imaginary = (
            (rows[::2], rows[1::2]) if self.interleaved else (rows[:half], rows[half:])
        )
        return Freedom(
            real=tuple(real),
            imaginary=tuple(imaginary),
            key_bias=self.bias,
            output_bias=self.bias,
        )


def random_weights(shape: Shape, seed: int, dtype: torch.dtype = torch.float64) -> AttentionWeights:
    made = torch.Generator().manual_seed(seed)

    def draw(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=made, dtype=torch.float64).to(dtype)

    def bias(*size: int) -> torch.Tensor | None:
        return draw(*size) if shape.bias else None

    return AttentionWeights(
        q=draw(shape.heads, shape.head_dim, shape.hidden),
        k=draw(shape.kv_heads, shape.head_dim, shape.hidden),
        v=draw(shape.kv_heads, shape.v_head_dim, shape.hidden),
        o=draw(shape.heads, shape.hidden, shape.v_head_dim),
        q_bias=bias(shape.heads, shape.head_dim),
        k_bias=bias(shape.kv_heads, shape.head_dim),
        v_bias=bias(shape.kv_heads, shape.v_head_dim),
        o_bias=bias(shape.hidden),
    )


def projected(weight: torch.Tensor, bias: torch.Tensor | None, x: torch.Tensor) -> torch.Tensor:
    """[heads, tokens, d] of x [tokens, D]."""
    out = torch.einsum("hdD,tD->htd", weight, x)
    return out if bias is None else out + bias[:, None]


def rotate(heads: torch.Tensor, shape: Shape) -> torch.Tensor:
    """Rotary embedding of [heads, tokens, d], written out pair by pair."""
    turned = heads.clone()
    half = shape.rotated // 2
    for pair in range(half):
        real, imaginary = (2 * pair, 2 * pair + 1) if shape.interleaved else (pair, pair + half)
        angle = torch.arange(heads.shape[1], dtype=heads.dtype) * 100.0 ** (-pair / half)
        cos, sin = angle.cos(), angle.sin()
        turned[..., real] = heads[..., real] * cos - heads[..., imaginary] * sin
        turned[..., imaginary] = heads[..., imaginary] * cos + heads[..., real] * sin
    return turned


def attention(weights: AttentionWeights, shape: Shape, x: torch.Tensor) -> torch.Tensor:
    """[tokens, D]: causal softmax attention of x [tokens, D]."""
    group_size = len(weights.q) // len(weights.k)
    q = rotate(projected(weights.q, weights.q_bias, x), shape)
    k = rotate(projected(weights.k, weights.k_bias, x), shape).repeat_interleave(group_size, 0)
    v = projected(weights.v, weights.v_bias, x).repeat_interleave(group_size, 0)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    scores = scores.masked_fill(torch.ones(len(x), len(x)).triu(1).bool(), float("-inf"))
    out = torch.einsum("htd,hDd->tD", scores.softmax(-1) @ v, weights.o)
    return out if weights.o_bias is None else out + weights.o_bias


def drawn_inputs(shape: Shape, seed: int, tokens: int = 400) -> torch.Tensor:
    """[tokens, D] with a covariance of its own and a mean."""
    made = torch.Generator().manual_seed(seed)
    mix = torch.randn(shape.hidden, shape.hidden, generator=made, dtype=torch.float64)
    scale = torch.logspace(0, -1.5, shape.hidden, dtype=torch.float64)
    x = torch.randn(tokens, shape.hidden, generator=made, dtype=torch.float64) * scale
    return x @ mix + torch.randn(shape.hidden, generator=made, dtype=torch.float64)


def measured_moments(weights: AttentionWeights, x: torch.Tensor) -> Moments:
    """What the projections of x [tokens, D] give, values unmixed."""
    q = projected(weights.q, weights.q_bias, x)
    k = projected(weights.k, weights.k_bias, x).transpose(0, 1).flatten(1)
    v = projected(weights.v, weights.v_bias, x).transpose(0, 1).flatten(1)
    return Moments(
        queries=q.mT @ q / len(x),
        keys=k.mT @ k / len(x),
        key_mean=k.mean(0),
        values=v.mT @ v / len(x),
        value_mean=v.mean(0),
    )
