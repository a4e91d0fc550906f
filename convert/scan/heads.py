"""The K/V heads of a layer: which tensors hold them, and how alike they are.

Nothing of a tensor is kept but the products of its heads with one another, [K/V heads, K/V heads].
"""

from math import isfinite

import torch

from headcount.audit.audited import Audit
from headcount.audit.rules.scanned import LayerScan
from headcount.model.divisors import divisors

from ..attention_map.attention_tensors import HeadTensors
from ..attention_map.mapping import attention_map
from ..stream.reader import DTYPES

# Elements that are multiplied in one piece: as float32 below the size from which malloc takes pages
# of their own, which it then keeps between what stays.
_CHUNK = 2**15


def key_value_tensors(audit: Audit) -> dict[str, HeadTensors]:
    """Each tensor of a decoder's self-attention that holds K or V heads, biases included."""
    census = audit.census
    if census is None or census.packed:
        return {}
    found: dict[str, HeadTensors] = {}
    for (_, cross), one in attention_map(audit).attentions.items():
        held = {each.tensor.name: each for each in one.projections if _is_readable(each)}
        parts = {part for each in held.values() for part in each.parts}
        if not cross and {"k", "v"} <= parts | (set() if one.mixer.has_value else {"v"}):
            found |= held
    return found


def _is_readable(held: HeadTensors) -> bool:
    return held.has_key_value and held.tensor.dtype in DTYPES and held.length == held.blocks.rows


class Likeness:
    """What the K/V heads of one layer have in common, added up tensor by tensor."""

    def __init__(self, heads: int) -> None:
        self.heads = heads
        self.products: dict[str, torch.Tensor] = {}
        # Counts of K/V heads that the heads, in equal runs of neighbours, could be replaced by.
        self.distinct = [count for count in divisors(heads) if count < heads]

    def add(self, part: str, heads: torch.Tensor) -> None:
        """Takes in [heads, rows, ...] of one tensor, a few rows at a time."""
        total = self.products.setdefault(
            part, torch.zeros(self.heads, self.heads, dtype=torch.float64)
        )
        step = max(1, _CHUNK * heads.shape[1] // max(1, heads.numel()))
        for piece in heads.split(step, dim=1):
            rows = piece.reshape(self.heads, -1)
            self.distinct = [n for n in self.distinct if _repeats(rows, self.heads // n)]
            floats = rows.to(torch.float64 if rows.dtype == torch.float64 else torch.float32)
            total += (floats @ floats.t()).double()

    def result(self, layer: int) -> LayerScan:
        """The findings of a layer whose tensors have all been added."""
        lost = {
            count: _mean([_lost(total, count) for total in self.products.values()])
            for count in divisors(self.heads)
            if count < self.heads
        }
        return LayerScan(
            layer=layer,
            num_key_value_heads=self.heads,
            repeated=min(self.distinct, default=None),
            key_similarity=_similarity(self.products.get("k")),
            value_similarity=_similarity(self.products.get("v")),
            lost_by_mean=lost,
        )


def _repeats(rows: torch.Tensor, run_length: int) -> bool:
    runs = rows.reshape(-1, run_length, rows.shape[1])
    return bool((runs == runs[:, :1]).all())


def _similarity(products: torch.Tensor | None) -> float | None:
    """Mean cosine over all pairs of heads, of weights and biases together."""
    if products is None or len(products) < 2:
        return None
    heads = len(products)
    norms = products.diagonal().sqrt()
    cosines = products / (norms[:, None] * norms).clamp(min=torch.finfo(torch.float64).tiny)
    mean = float(cosines.sum() - cosines.diagonal().sum()) / (heads * (heads - 1))
    return mean if isfinite(mean) else None  # NaN weights have no direction


def _lost(products: torch.Tensor, count: int) -> float | None:
    """The share of the squared weights that is lost when the heads of each of `count` groups become
    their mean: sum |w - mean|^2 / sum |w|^2, where sum |w - mean|^2 = sum |w|^2 - |sum w|^2 / n."""
    members = len(products) // count
    groups = products.reshape(count, members, count, members)
    sums = float(torch.einsum("gigj->", groups))
    whole = float(products.trace())
    if not isfinite(whole) or not isfinite(sums):
        return None
    return max(0.0, 1 - sums / members / whole) if whole else 0.0


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None
