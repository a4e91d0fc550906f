"""K/V memory over pipeline stages, each of which has a pool for the layers that it runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

from headcount.model.spec import ModelSpec

from .layers import stage_of_layers
from .pool import CachePool


@dataclass(frozen=True, kw_only=True, slots=True)
class StagedPool(CachePool):
    """`stages` are the pools of the stages, in their order. What fits is what fits on all of them;
    a stage that keeps nothing, such as one whose layers read others' caches, sets no limit."""

    stages: tuple[CachePool, ...]

    @property
    def block_size(self) -> int | None:
        return self.stages[0].block_size

    def bytes_per_token(self, within: int | None) -> int:
        """On the stage where it is most."""
        return max(pool.bytes_per_token(within) for pool in self.stages)

    def bytes_of_first_token(self, within: int | None) -> int:
        return max(pool.bytes_of_first_token(within) for pool in self.stages)

    def needed(self, context: int, batch_size: int, stage: int = 0) -> int:
        return self.stages[stage].needed(context, batch_size)

    def concurrency(self, available: Sequence[int], context: int) -> float:
        return self._least(available, context, lambda pool, own: pool.concurrency(own, context))

    def kv_tokens(self, available: Sequence[int], context: int) -> int:
        return int(self._least(available, context, lambda pool, own: pool.kv_tokens(own, context)))

    def num_blocks(self, available: Sequence[int]) -> int | None:
        if self.stages[0].num_blocks(available[:1]) is None:
            return None
        return int(self._least(available, 1, lambda pool, own: pool.num_blocks(own) or 0))

    def unlogged(self, logged: int) -> int:
        return max(pool.unlogged(logged) for pool in self.stages)

    def notes(self) -> Sequence[str]:
        return list(dict.fromkeys(note for pool in self.stages for note in pool.notes()))

    def _least(
        self,
        available: Sequence[int],
        context: int,
        count: Callable[[CachePool, Sequence[int]], float],
    ) -> float:
        """Of the stages that keep something; 0 where none does."""
        found = min(
            (
                count(pool, (free,))
                for pool, free in zip(self.stages, available, strict=True)
                if pool.needed(context, 1)
            ),
            default=inf,
        )
        return 0 if found == inf else found


def pool_of_stages(spec: ModelSpec, pp: int, pool: Callable[[ModelSpec], CachePool]) -> CachePool:
    """`pool` of the whole model, or of the layers of each of `pp` stages."""
    if pp == 1:
        return pool(spec)
    at = stage_of_layers(len(spec.layers), pp)
    return StagedPool(
        stages=tuple(
            pool(
                replace(
                    spec,
                    layers=tuple(n for n, own in zip(spec.layers, at, strict=True) if own == stage),
                )
            )
            for stage in range(pp)
        )
    )
