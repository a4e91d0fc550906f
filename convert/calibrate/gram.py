"""Sums of a^T a over batches of rows."""

import torch

# Columns that are multiplied at a time: only what lies on and above the diagonal is computed.
_BLOCK = 256


class Gram:
    """[size, size]: the sum of a^T a of all rows [n, size] that were added."""

    def __init__(self, size: int, dtype: torch.dtype = torch.float64) -> None:
        self._sums = torch.zeros(size, size, dtype=dtype)

    def add(self, rows: torch.Tensor) -> None:
        for start in range(0, rows.shape[1], _BLOCK):
            block = slice(start, start + _BLOCK)
            self._sums[block, start:] += rows[:, block].T @ rows[:, start:]

    def result(self) -> torch.Tensor:
        """The sum, symmetric to the last bit."""
        return self._sums.triu() + self._sums.triu(1).T
