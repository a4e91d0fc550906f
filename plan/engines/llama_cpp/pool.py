"""llama.cpp's caches: cells of a context that is fixed at the start, and states of its slots."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from headcount.model.mixers import fills

from ..pool import CachePool
from .cache_types import CacheTypes, row_bytes
from .layer_cells import LayerCells
from .slots import PAD, SLOTS, Layout, Slots, padded


@dataclass(frozen=True, kw_only=True)
class LlamaCppPool(CachePool):
    """Caches of the layers of one device."""

    layers: tuple[LayerCells, ...]
    types: CacheTypes
    slots: Slots

    def bytes_per_token(self, within: int | None) -> int:
        growing = (c for c in self.layers if self.slots.swa_full or not fills(c.window, within))
        return sum(-(-self._cell(cells) // cells.rate) for cells in growing)

    def _cell(self, cells: LayerCells) -> int:
        return row_bytes(cells.keys, self.types.keys) + row_bytes(cells.values, self.types.values)

    def needed(self, context: int, batch_size: int, stage: int = 0) -> int:
        layout = self.slots.of(context, batch_size)
        return self.cell_bytes(layout) + self.state_bytes(layout)

    @cached_property
    def _alike(self) -> tuple[tuple[LayerCells, int], ...]:
        """Of layers that keep the same one, and how many they are."""
        one = {cells.kept: cells for cells in self.layers}
        counts = Counter(cells.kept for cells in self.layers)
        return tuple((one[kept], count) for kept, count in counts.items())

    def cell_bytes(self, layout: Layout) -> int:
        """Keys and values of all streams: what llama_kv_cache logs."""
        return sum(n * self._cells(cells, layout) * self._cell(cells) for cells, n in self._alike)

    def state_bytes(self, layout: Layout) -> int:
        """Of all slots: what llama_memory_recurrent logs."""
        return layout.count * sum(n * cells.state for cells, n in self._alike)

    def _cells(self, cells: LayerCells, layout: Layout) -> int:
        if cells.own:
            layout = replace(layout, streams=layout.count)
        count = layout.cells_within(cells.window)
        return layout.streams * (count if cells.rate == 1 else padded(-(-count // cells.rate)))

    def concurrency(self, available: Sequence[int], context: int) -> float:
        """Whole requests, and the part of one more that the rest would hold."""
        most, low = min(available), 0
        high = 1
        if not self.needed(context, 1):
            return 0.0
        while self.needed(context, high) <= most:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.needed(context, middle) <= most else (low, middle)
        taken = self.needed(context, low) if low else 0
        rest = (most - taken) / (self.needed(context, low + 1) - taken)
        return low + min(1.0, max(0.0, rest)) if low + rest > 0 else 0.0

    def kv_tokens(self, available: Sequence[int], context: int) -> int:
        return int(self.concurrency(available, context)) * padded(context)

    def notes(self) -> Sequence[str]:
        found = [
            f"Cells are padded to {PAD}. llama-server has {SLOTS} slots over one cache unless"
            " --parallel is given: then each has cells of its own, or with --kv-unified a share."
        ]
        if any(cells.window is not None for cells in self.layers):
            found.append(
                "Layers with a window have cells for that of every slot that shares them and for a"
                f" micro-batch of {self.slots.ubatch_size} (--ubatch-size); --swa-full gives them"
                " all."
            )
        if any(cells.state for cells in self.layers):
            found.append("Recurrent state is float32, one for each slot.")
        return found
