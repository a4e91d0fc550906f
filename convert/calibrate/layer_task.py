"""What there is to do in one layer, and the rows of hidden states that it is done with."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from ..attention_map.attention_tensors import AttentionTensors
from ..merge.attention_weights import AttentionWeights, Groups, Merged
from ..merge.freedom import Freedom
from ..merge.ladder import Ladder
from ..plan.heads import Heads
from ..rewrite.tensors import Read, tensors_of
from .calibration_rows import CalibrationRows
from .layer_calls import Calls
from .layer_hooks import AttentionPlace
from .layered_model import assign
from .output_uses import LayerUses
from .pairs.pair_memory import PairMemory
from .placed import CPU, Value, placed
from .shared_batches import SharedBatches
from .state_rows import Room, StateRows


@dataclass(frozen=True, kw_only=True, slots=True)
class States:
    """Rows of one conversion: what the `original` and the `converted` prefix give to the layer at
    hand, and room for targets, for what the attention is given, and for an MLP's `features`."""

    original: StateRows
    converted: StateRows
    target: StateRows
    given: StateRows
    features: Room

    def close(self) -> None:
        for rows in (self.original, self.converted, self.target, self.given, self.features):
            rows.close()


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerTask:
    """A layer with its weights, and all that says what is to become of one of its attentions.
    `stored` tells whether the files have the parameter at a path in the layer as it is. `chosen`
    are groups of K/V heads that an earlier run has chosen; None: it is for this one to choose.
    `memory`: what an encoder gives. `is_first`: another attention of the layer follows, with which
    the rows move on. The layer lies on `device`, with what is computed of the text. `earlier`: the
    names of the attention before this one, as in `place`, which is a new one now; `replaced`: by
    their paths, what the layer had of it."""

    layer: nn.Module
    calls: Calls
    place: AttentionPlace
    tensors: AttentionTensors
    read: Read
    stored: Callable[[str], bool]
    freedom: Freedom
    heads: Heads
    ladder: Ladder
    text: CalibrationRows
    uses: LayerUses
    shared: SharedBatches
    chosen: Groups | None = None
    memory: PairMemory | None = None
    is_first: bool = False
    device: torch.device = CPU
    earlier: Mapping[str, str] = field(default_factory=dict)
    replaced: Mapping[str, torch.Tensor] = field(default_factory=dict)

    @property
    def is_fitted(self) -> bool:
        """Whether anything is fitted to the outputs of the original layer."""
        return self.ladder.refit != "none" or self.ladder.reconstruct > 0

    def here(self, value: Value) -> Value:
        """`value` with its tensors where the layer is."""
        return placed(value, self.device)

    def each(
        self,
        batches: Sequence[slice],
        make: Callable[[slice], Iterable[torch.Tensor]],
        take: Callable[[slice, Iterator[torch.Tensor]], None],
    ) -> None:
        """See `SharedBatches.each`; `take` gets what it takes where the layer is."""
        self.shared.each(batches, make, lambda batch, parts: take(batch, map(self.here, parts)))

    def made(self, merged: Merged, weights: AttentionWeights) -> dict[str, torch.Tensor]:
        """The tensors of the files for `weights`, whose heads lie as those of `merged`."""
        made = tensors_of(
            self.tensors, weights, self.read, merged.order, merged.groups, self.heads.subset
        )
        return {name: value.detach().contiguous() for name, value in made.items()}

    def assign(self, made: Mapping[str, torch.Tensor]) -> None:
        """Gives the layer tensors by their names in the files."""
        assign(self.layer, {self.place.names[name]: value for name, value in made.items()})


@dataclass(frozen=True, kw_only=True, slots=True)
class FittedLayer:
    """The new tensors of a layer: its attention's by their names in the files, the MLP's last
    projection by its path in the layer; and what was measured."""

    attention: Mapping[str, torch.Tensor]
    mlp: Mapping[str, torch.Tensor]
    measured: Mapping[str, Any]


def run_rows(layer: nn.Module, calls: Calls, rows: StateRows, batches: Iterable[slice]) -> None:
    """Moves rows on to what `layer` gives."""
    for batch in batches:
        rows[batch] = calls(batch).run(layer, rows[batch])
