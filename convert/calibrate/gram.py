"""Sums of a^T a over batches of rows."""

from collections.abc import Iterator

import torch

from .placed import CPU

# Columns that are multiplied at a time: only what lies on and above the diagonal is computed.
_BLOCK = 256


class Gram:
    """[size, size]: the sum of a^T a of all rows [n, size] that were added."""

    def __init__(
        self, size: int, dtype: torch.dtype = torch.float64, device: torch.device = CPU
    ) -> None:
        self._sums = torch.zeros(size, size, dtype=dtype, device=device)

    def add(self, rows: torch.Tensor) -> None:
        self.take(self.parts(rows))

    @staticmethod
    def parts(rows: torch.Tensor) -> Iterator[torch.Tensor]:
        """What `rows` add, block by block, for `take`, here or in another process."""
        for start in range(0, rows.shape[1], _BLOCK):
            yield rows[:, start : start + _BLOCK].T @ rows[:, start:]

    def take(self, parts: Iterator[torch.Tensor]) -> None:
        """Adds the next `parts`."""
        for start in range(0, len(self._sums), _BLOCK):
            self._sums[start : start + _BLOCK, start:] += next(parts)

    def result(self) -> torch.Tensor:
        """The sum, symmetric to the last bit."""
        return self._sums.triu() + self._sums.triu(1).T
