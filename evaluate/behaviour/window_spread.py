"""Whole windows of the text: how far their losses lie apart, and which are worst."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from ..loss import WindowLosses

SHARES = (0.0, 0.1, 0.5, 0.9, 1.0)
_EXCERPT = 16  # tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class Quantile:
    """The `share` of windows have at most these mean losses; that of `delta`, loss over the
    original's, is of the windows in its own order."""

    share: float
    model: float
    against: float | None
    delta: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class WorstWindow:
    """A window that starts at token `start` of the text, where `text` stands."""

    start: int
    first_token: str
    text: str
    tokens: int
    model: float
    against: float | None
    delta: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowSpread:
    """Mean losses in nats of the tokens that each of `count` windows scores."""

    count: int
    quantiles: tuple[Quantile, ...]
    worst: tuple[WorstWindow, ...]

    def document(self) -> dict[str, Any]:
        return {
            "count": self.count,
            "quantiles": [asdict(one) for one in self.quantiles],
            "worst": [asdict(one) for one in self.worst],
        }


def window_spread(
    windows: Sequence[WindowLosses], ids: Tensor, decode: Callable[[list[int]], str], *, worst: int
) -> WindowSpread:
    """The worst are those that lost most against the original or, without one, have most loss.
    `ids` ([tokens]) are the text's, which `decode` turns into words."""
    model = torch.stack([one.model[one.scored].mean() for one in windows])
    originals = [one.original[one.scored].mean() for one in windows if one.original is not None]
    original = torch.stack(originals) if originals else None
    delta = None if original is None else model - original
    order = (model if delta is None else delta).argsort(descending=True, stable=True)
    return WindowSpread(
        count=len(windows),
        quantiles=tuple(
            Quantile(
                share=share,
                model=_quantile(model, share),
                against=None if original is None else _quantile(original, share),
                delta=None if delta is None else _quantile(delta, share),
            )
            for share in SHARES
        ),
        worst=tuple(
            WorstWindow(
                start=windows[at].window.start,
                first_token=decode(ids[windows[at].window.start :][:1].tolist()),
                text=decode(ids[windows[at].window.start :][:_EXCERPT].tolist()),
                tokens=len(windows[at].model[windows[at].scored]),
                model=model[at].item(),
                against=None if original is None else original[at].item(),
                delta=None if delta is None else delta[at].item(),
            )
            for at in order[:worst].tolist()
        ),
    )


def _quantile(values: Tensor, share: float) -> float:
    return torch.quantile(values, share).item()
