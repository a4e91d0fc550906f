"""One layer with a smaller cache, as the source's own class computes it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import torch

from ..attention_map.attention_tensors import Where
from ..latent.factors import low_rank
from ..merge.ladder import Ladder
from ..plan.heads import HeadsByLayer, heads_of
from ..plan.source import ConversionSource
from ..rewrite.freedom import alone, freedoms_of
from ..rewrite.layer import merged_documents
from ..rewrite.tensors import Read, tensors_of, weights_of
from ..rewrite.uncalibrated import uncalibrated_layers
from ..stream.threads import one_thread

# [width, width]: the second moment of what the k and v of a layer read.
Inputs = Callable[[Where, int], torch.Tensor]


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """The tensors of a layer that change, by their names in the source's files and of the source's
    shapes; and the sum of the shares that are lost of its scores' and its output's energy."""

    tensors: Mapping[str, torch.Tensor]
    error: float


class Variants(Protocol):
    def of(self, index: int, size: int) -> Variant:
        """Layer `index` with that size."""


class FewerHeads:
    """K/V heads merged by the weights alone, by the method and grouping of `ladder`."""

    def __init__(self, source: ConversionSource, ladder: Ladder) -> None:
        self._source = source
        self._ladder = Ladder(method=ladder.method, grouping=ladder.grouping, seed=ladder.seed)

    def of(self, index: int, size: int) -> Variant:
        mixers = self._source.attention_map.mixers
        if size == mixers[index, False].num_key_value_heads:
            return Variant(tensors={}, error=0.0)
        heads = {
            where: heads_of(mixer, size if where[0] == index else mixer.num_key_value_heads)
            for where, mixer in mixers.items()
        }
        by_layer = HeadsByLayer(layers=heads)
        made = uncalibrated_layers(self._source, by_layer, self._ladder, lambda index: None)
        (layer,) = made
        lost = sum(m["key_error"] + m["value_error"] for m in merged_documents(layer.measured))
        return Variant(tensors=layer.tensors, error=lost)


class SmallerLatents:
    """Keys and values of a latent for `inputs`, multiplied out."""

    def __init__(self, source: ConversionSource, read: Read, inputs: Inputs) -> None:
        self._source, self._read, self._inputs = source, read, inputs
        self._freedoms = freedoms_of(source)
        self._known: tuple[int, torch.Tensor] | None = None

    def of(self, index: int, size: int) -> Variant:
        where = (index, False)
        tensors = self._source.attention_map.attentions[where]
        weights = weights_of(tensors, self._read)
        if self._known is None or self._known[0] != index:
            self._known = index, self._inputs(where, weights.k.shape[-1])
        with one_thread():
            found = low_rank(weights, alone(self._freedoms[where]), self._known[1], size)
        held = [p for p in tensors.projections if p.has_key_value and not p.is_bias]
        dense = replace(weights, k=found.key @ found.down, v=found.value @ found.down)
        made = tensors_of(tensors, dense, self._read)
        return Variant(
            tensors={p.tensor.name: made[p.tensor.name].contiguous() for p in held},
            error=found.key_error + found.value_error,
        )
