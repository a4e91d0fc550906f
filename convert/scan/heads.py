"""The K/V heads of a layer: where they lie in its tensors, and how alike they are.

Nothing of a tensor is kept but the products of its heads with one another, [K/V heads, K/V heads].
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite

import torch

from headcount.audit.audited import Audit
from headcount.audit.census import Placed
from headcount.audit.rules.scanned import LayerScan
from headcount.model.divisors import divisors
from headcount.model.mixers import Attention
from headcount.model.spec import MixerKey
from headcount.sources.safetensors import TensorInfo

from ..plan.layout import Blocks, fused, one_part
from ..stream.head_layout import split_heads
from ..stream.reader import DTYPES

# Elements that are multiplied in one piece: as float32 below the size from which malloc takes pages
# of their own, which it then keeps between what stays.
_CHUNK = 2**15


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadTensor:
    """A tensor that holds K or V heads of `mixer`, or both, and how they lie in it."""

    key: MixerKey
    mixer: Attention
    layout: Blocks

    def heads(self, values: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
        """`k` and `v` with [heads, rows, ...], in the order of the heads."""
        held = split_heads(values, self.layout)
        yield from ((part, heads) for part, heads in held.items() if part != "q")


def key_value_tensors(audit: Audit) -> dict[str, HeadTensor]:
    """Each tensor of a decoder's self-attention that holds K or V heads, biases included."""
    census = audit.census
    if census is None or census.packed:
        return {}
    found: dict[str, HeadTensor] = {}
    for layer in audit.spec.layers:
        for key, mixer in layer.keyed_mixers():
            placed = census.layers.get(key, ())
            if layer.stack != "decoder" or type(mixer) is not Attention:
                continue
            of_layer = dict(_head_tensors(audit, key, mixer, placed))
            held = {block.part for one in of_layer.values() for block in one.layout.blocks}
            if {"k", "v"} <= held | (set() if mixer.has_value else {"v"}):
                found |= of_layer
    return found


def _head_tensors(
    audit: Audit, key: MixerKey, mixer: Attention, placed: tuple[Placed, ...]
) -> Iterator[tuple[str, HeadTensor]]:
    names = audit.architecture.names
    for item in placed:
        part, info = item.place.part or "", item.tensor
        if part not in ("k", "v", "qkv") or info.dtype not in DTYPES:
            continue
        axis = -1 if names.transposed and len(info.shape) > 1 else 0
        if part == "qkv":
            layout = fused(names.fused_by(audit.config), mixer, axis=axis)
        else:
            heads, dim = mixer.num_key_value_heads, mixer.head_dim
            layout = one_part(part, heads, dim if part == "k" else mixer.v_head_dim, axis=axis)
        if _fits(info, layout):
            yield info.name, HeadTensor(key=key, mixer=mixer, layout=layout)


def _fits(info: TensorInfo, layout: Blocks) -> bool:
    return bool(info.shape) and info.shape[layout.axis] == layout.rows


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
