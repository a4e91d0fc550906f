"""What merging minimises, from inputs and D x D matrices, and the least that it can be.

Nothing here knows of head space: scores are bilinear forms of [x; 1], outputs linear maps of it,
and optima are singular values (Eckart-Young).
"""

from collections.abc import Sequence

import numpy as np
import torch

from headcount.convert.merge.attention_weights import AttentionWeights
from small_attention import Shape


class Objective:
    """Of one attention on inputs x [tokens, D]. `least`: the optimum over all shared heads."""

    def __init__(self, weights: AttentionWeights, shape: Shape, x: torch.Tensor):
        self.weights, self.shape = weights, shape
        augmented = np.concatenate([x.numpy(), np.ones((len(x), 1))], 1)
        self.second = augmented.T @ augmented / len(x)
        self.root = _root(self.second)
        mean = augmented.mean(0)
        self.centred_root = _root(self.second - np.outer(mean, mean))
        self.readers = len(weights.q) // len(weights.k)

    def key_targets(self, heads: Sequence[int], weights: AttentionWeights | None = None):
        """The forms of every query head in `heads` (source numbers or places), block by block:
        a list of [query heads, D+1, D+1] with half weights for complex ones."""
        weights = weights or self.weights
        q, k = _rows(weights.q, weights.q_bias), _rows(weights.k, weights.k_bias)
        k = k.repeat(self.readers, 0)
        freedom, width = self.shape.freedom, self.shape.head_dim
        blocks = []
        for real, imaginary in zip(freedom.real, freedom.imaginary, strict=True):
            turning = [
                np.outer(
                    (q[h, real] + 1j * q[h, imaginary]).conj(), k[h, real] + 1j * k[h, imaginary]
                )
                for h in heads
            ]
            blocks.append(self._measured(turning, self.root) / 2**0.5)
        still = sorted(set(range(width)) - {*freedom.real, *freedom.imaginary})
        if still:
            blocks.append(
                self._measured([q[h, still].T @ k[h, still] for h in heads], self.centred_root)
            )
        return blocks

    def value_targets(self, heads: Sequence[int], weights: AttentionWeights | None = None):
        """[query heads, D out, D+1]: the maps of x that o and v make."""
        weights = weights or self.weights
        v, o = _rows(weights.v, weights.v_bias).repeat(self.readers, 0), weights.o.numpy()
        root = self.centred_root if self.shape.bias else self.root
        return np.stack([o[h] @ v[h] @ root for h in heads])

    def _measured(self, forms: list[np.ndarray], key_root: np.ndarray) -> np.ndarray:
        return np.stack([self.root @ form @ key_root for form in forms])

    def queries_of(self, members: Sequence[int]) -> list[int]:
        return [h * self.readers + i for h in members for i in range(self.readers)]

    def least(self, groups: Sequence[Sequence[int]]) -> tuple[float, float]:
        """The optimum of keys and of values, as shares of what there is."""
        key = value = all_keys = all_values = 0.0
        for members in groups:
            heads = self.queries_of(members)
            for block in self.key_targets(heads):
                rank = 1 if np.iscomplexobj(block) else self.shape.head_dim - self.shape.rotated
                key += _tail(block, rank)
                all_keys += float((abs(block) ** 2).sum())
            block = self.value_targets(heads)
            value += _tail(block, self.shape.v_head_dim)
            all_values += float((block**2).sum())
        return key / all_keys, value / all_values

    def reached(
        self, groups: Sequence[Sequence[int]], merged: AttentionWeights
    ) -> tuple[float, float]:
        """What merged weights lose, as shares."""
        heads = self.queries_of([head for members in groups for head in members])
        places = list(range(len(heads)))
        before, after = self.key_targets(heads), self.key_targets(places, merged)
        key = sum(float((abs(a - b) ** 2).sum()) for a, b in zip(before, after, strict=True))
        old, new = self.value_targets(heads), self.value_targets(places, merged)
        return (
            key / sum(float((abs(a) ** 2).sum()) for a in before),
            float(((old - new) ** 2).sum() / (old**2).sum()),
        )


def _tail(block: np.ndarray, rank: int) -> float:
    singular = np.linalg.svd(block.reshape(-1, block.shape[-1]), compute_uv=False)
    return float((singular[rank:] ** 2).sum())


def _rows(weight: torch.Tensor, bias: torch.Tensor | None) -> np.ndarray:
    """[heads, d, D+1]: with the bias as a last column."""
    last = torch.zeros(weight.shape[:2]) if bias is None else bias
    return torch.cat([weight, last[..., None].to(weight.dtype)], -1).numpy()


def _root(matrix: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.sqrt(values.clip(0))) @ vectors.T
