"""Tensors that are made while others are written: in order, in threads, in bounded memory."""

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future

import torch

from ..plan.steps import Step


class Ahead:
    """Hands out `make(step)` for each of `steps`, in their order. As many are begun early as have
    `budget` bytes with their sources; at least the next one."""

    def __init__(
        self,
        pool: Executor,
        make: Callable[[Step], torch.Tensor],
        steps: Iterable[Step],
        budget: int,
    ) -> None:
        self._pool = pool
        self._make = make
        self._waiting = deque(steps)
        self._begun: deque[tuple[Step, Future[torch.Tensor]]] = deque()
        self._budget = budget
        self._held = 0  # bytes of what is begun, and of what was taken last
        self._taken = 0

    def begin(self) -> None:
        """Begins what fits."""
        while self._waiting:
            nbytes = _nbytes(self._waiting[0])
            if self._begun and self._held + nbytes > self._budget:
                return
            step = self._waiting.popleft()
            self._held += nbytes
            self._begun.append((step, self._pool.submit(self._make, step)))

    def take(self) -> torch.Tensor:
        """The next one; the one before it must no longer be used. Raises what `make` raises."""
        self._held -= self._taken
        self.begin()
        step, future = self._begun.popleft()
        self._taken = _nbytes(step)
        return future.result()


def _nbytes(step: Step) -> int:
    return step.nbytes + sum(source.nbytes for source in step.sources)
