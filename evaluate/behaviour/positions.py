"""Loss by position in a window, and the in-context score: how much more context helps."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from ..loss import WindowLosses

EARLY, LATE = 50, 500
# Single positions are noisy: the score takes all within a tenth.
_NEAR = 10
_NEAREST = 2  # tokens before: with fewer nothing is known of a text
_WHOLE = LATE + LATE // _NEAR


@dataclass(frozen=True, kw_only=True, slots=True)
class PositionLosses:
    """Mean losses in nats of the tokens that have `first` to `last` tokens before them, of all
    windows: `tokens` of them. `against` is None without an original."""

    first: int
    last: int
    tokens: int
    model: float
    against: float | None

    @property
    def delta(self) -> float | None:
        return None if self.against is None else self.model - self.against

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "delta": self.delta}


@dataclass(frozen=True, kw_only=True, slots=True)
class InContextScore:
    """Loss with about `late` tokens before less that with about `early` (Olsson et al. 2022,
    section 2: 500 and 50): the more negative, the more is made of context. `scaled`: windows are
    shorter than that takes, and both positions as much nearer."""

    early: tuple[int, int]
    late: tuple[int, int]
    scaled: bool
    tokens: int  # that `late` stands for
    model: float
    against: float | None

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "early": list(self.early), "late": list(self.late)}


def losses_by_position(windows: Sequence[WindowLosses]) -> tuple[PositionLosses, ...]:
    """Ranges that double: 1 token before, 2 to 3, 4 to 7… up to all that a window reads."""
    most = max(len(one.model) for one in windows)
    edges = [1, *(2**power for power in range(1, most.bit_length()) if 2**power < most)]
    stops = [*(edge - 1 for edge in edges[1:]), most]
    return tuple(_between(windows, low, high) for low, high in zip(edges, stops, strict=True))


def in_context_score(windows: Sequence[WindowLosses], *, window: int) -> InContextScore | None:
    """Of windows that read up to `window` tokens; None where none is long enough to say."""
    share = min(window / _WHOLE, 1.0)
    early, late = (_around(round(place * share)) for place in (EARLY, LATE))
    if early[0] < _NEAREST or not any(len(one.model) >= late[0] for one in windows):
        return None
    first, second = _between(windows, *early), _between(windows, *late)
    return InContextScore(
        early=early,
        late=late,
        scaled=share < 1,
        tokens=second.tokens,
        model=second.model - first.model,
        against=None
        if second.against is None or first.against is None
        else second.against - first.against,
    )


def _around(place: int) -> tuple[int, int]:
    near = place // _NEAR
    return place - near, place + near


def _between(windows: Sequence[WindowLosses], first: int, last: int) -> PositionLosses:
    """Position p, counted from 0, predicts with p + 1 tokens before."""
    part = slice(first - 1, last)
    model = torch.cat([one.model[part] for one in windows])
    originals = [one.original[part] for one in windows if one.original is not None]
    return PositionLosses(
        first=first,
        last=last,
        tokens=len(model),
        model=model.mean().item(),
        against=_mean(originals),
    )


def _mean(parts: Sequence[Tensor]) -> float | None:
    return torch.cat([*parts]).mean().item() if parts else None
