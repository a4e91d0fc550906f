"""How many sequences llama-server serves at once, and the cells that they share or have each.

Without --parallel it has 4 slots over one cache (tools/server/server.cpp); with it, and without
--kv-unified, each slot has a stream of its own (llama_context of src/llama-context.cpp).
"""

from dataclasses import dataclass

PAD, SLOTS, BATCH, UBATCH = 256, 4, 2048, 512


def padded(cells: int, multiple: int = PAD) -> int:
    return -(-cells // multiple) * multiple


@dataclass(frozen=True, kw_only=True, slots=True)
class Slots:
    """What was asked for. `parallel` None: as many as the server takes by itself, or as many as
    requests are to be served."""

    parallel: int | None = None
    unified: bool = False
    ubatch_size: int = UBATCH
    swa_full: bool = False

    def of(self, context: int, batch_size: int) -> "Layout":
        """For `batch_size` requests of `context` tokens at once."""
        by_itself = self.parallel is None and batch_size <= SLOTS
        count = SLOTS if by_itself else max(batch_size, self.parallel or 1)
        unified = self.unified or by_itself
        cells = padded(context * batch_size) if unified else padded(context)
        return Layout(
            count=count,
            streams=1 if unified else count,
            cells=cells,
            asked=context * (batch_size if unified else count),
            ubatch=min(self.ubatch_size, BATCH, cells * (1 if unified else count)),
            swa_full=self.swa_full,
            by_itself=by_itself,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """`count` slots over `streams` of `cells` each: one that all share, or one of each. `asked` is
    what -c says; `by_itself`: the server takes as many unasked; `alone`: a micro-batch has tokens
    of one sequence, and not of each."""

    count: int
    streams: int
    cells: int
    asked: int
    ubatch: int
    swa_full: bool = False
    by_itself: bool = False
    alone: bool = False

    @property
    def sequences(self) -> int:
        """Of a micro-batch."""
        return 1 if self.alone else self.count

    @property
    def unified(self) -> bool:
        return self.streams < self.count

    def cells_within(self, window: int | None) -> int:
        """Cells of a stream in a layer with this window: room for that of every sequence in it and
        for one micro-batch (llama_kv_cache_iswa)."""
        if window is None or self.swa_full:
            return self.cells
        sharing = self.count if self.unified else 1
        return padded(min(self.cells, window * sharing + self.ubatch))
