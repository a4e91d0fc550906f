"""Linear least squares with a ridge, from sums over batches, checked on rows that were held out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from .gram import Gram
from .placed import CPU

# Largest side of the sums that are kept in float64; beyond it they take float32.
_WIDE = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    """`change` [features, outputs] of the map that was there, the squared errors of the held-out
    rows without and with it, and the ridge, relative to the mean square of a feature."""

    change: torch.Tensor
    before: float
    after: float
    ridge: float


def relative(error: float, size: float) -> float:
    """A squared error as a share of the squares of what is aimed at; as it is where that is zero,
    as an attention's output is whose weights are (of layers that are pruned, or not trained)."""
    return error / (size or 1.0)


class NormalEquations:
    """Sums of a^T a and a^T r over fitted rows, r what a map leaves of its target. Held-out rows
    are kept as they are."""

    def __init__(
        self,
        features: int,
        outputs: int,
        *,
        bias: bool,
        dtype: torch.dtype,
        device: torch.device = CPU,
    ) -> None:
        size = features + bias
        self._bias = bias
        kept = torch.float64 if size <= _WIDE else dtype
        self._gram = Gram(size, kept, device)
        self._cross = torch.zeros(size, outputs, dtype=kept, device=device)
        self._held: list[tuple[torch.Tensor, torch.Tensor]] = []

    def add(self, features: torch.Tensor, rest: torch.Tensor) -> None:
        """One batch: [..., features] and what is left of the target, [..., outputs]."""
        self.take(self.parts(features, rest, held=False), held=False)

    def hold(self, features: torch.Tensor, rest: torch.Tensor) -> None:
        """One batch that is not fitted: what is found must not be worse on it."""
        self.take(self.parts(features, rest, held=True), held=True)

    def parts(
        self, features: torch.Tensor, rest: torch.Tensor, *, held: bool
    ) -> Iterator[torch.Tensor]:
        """What a batch adds, piece by piece, for `take`, here or in another process."""
        a, r = self._augmented(features), rest.flatten(0, -2)
        if held:
            yield from (a, r)
            return
        yield from self._gram.parts(a)
        yield a.T @ r

    def take(self, parts: Iterator[torch.Tensor], *, held: bool) -> None:
        """Adds the next `parts`, which are those of one batch."""
        if held:
            self._held.append((next(parts), next(parts).clone()))
            return
        self._gram.take(parts)
        self._cross += next(parts)

    def solve(self, ridges: Sequence[float]) -> Fit:
        """The change that is best on the held-out rows, over `ridges`, or none at all."""
        before = self._error(None)
        best = Fit(change=torch.zeros_like(self._cross), before=before, after=before, ridge=0.0)
        products = self._gram.result()
        scale = float(products.diagonal().mean())
        if scale == 0:
            return best
        for ridge in ridges:
            gram = products.clone()
            gram.diagonal().add_(ridge * scale)
            factor, info = torch.linalg.cholesky_ex(gram)
            if int(info):
                continue
            change = torch.cholesky_solve(self._cross, factor)
            after = self._error(change)
            if after < best.after:
                best = Fit(change=change, before=before, after=after, ridge=ridge)
        return best

    def _augmented(self, features: torch.Tensor) -> torch.Tensor:
        flat = features.flatten(0, -2)
        return torch.cat([flat, flat.new_ones(len(flat), 1)], 1) if self._bias else flat

    def _error(self, change: torch.Tensor | None) -> float:
        total = 0.0
        for a, r in self._held:
            left = r if change is None else r - a @ change.to(a.dtype)
            total += float(left.double().square().sum())
        return total
