"""How the batches of a text are shared by the processes of a launch.

Each process runs its own batches, and keeps their rows. What is summed over batches is summed by
the main process, batch after batch in the order of the text: floating-point sums depend on it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor

from headcount.running.team import Team, this_team

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class SharedBatches:
    """Batches are equal runs of rows, and go to the processes in turn."""

    team: Team

    def _owner(self, batch: slice) -> int:
        number: int = batch.start // (batch.stop - batch.start)
        return number % self.team.count

    def mine(self, batches: Iterable[slice]) -> list[slice]:
        """Those of this process."""
        return [batch for batch in batches if self._owner(batch) == self.team.index]

    def is_far(self, batch: slice) -> bool:
        """Whether another process than the main one has it."""
        return self._owner(batch) != 0

    def each(
        self,
        batches: Sequence[slice],
        make: Callable[[slice], Iterable[Tensor]],
        take: Callable[[slice, Iterator[Tensor]], None],
    ) -> None:
        """For every batch `make` in the process that has it, and `take` of what it gave in the main
        one, in the order of the batches."""
        self.team.each(batches, self._owner, make, take)

    def from_owner(self, batch: slice, act: Callable[[], Value]) -> Value:
        """What `act` gives in the process that has `batch`, in all."""
        return self.team.from_one(self._owner(batch), act)

    def from_main(self, act: Callable[[], Value]) -> Value:
        """What `act` gives in the main process, in all."""
        return self.team.from_main(act)


def shared_batches() -> SharedBatches:
    """As the processes of this launch share them; one process has all."""
    return SharedBatches(this_team())
