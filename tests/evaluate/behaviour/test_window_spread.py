"""Quantiles over windows, and the worst of them."""

import pytest
import torch

from headcount.evaluate.behaviour.window_spread import window_spread
from headcount.evaluate.loss import WindowLosses
from headcount.evaluate.windows import cut_windows

pytestmark = pytest.mark.needs_convert


def _windows() -> list[WindowLosses]:
    """Eleven windows; window n scores a mean of n, the original n + 10, but window 4, which it
    scores 3. What a window only reads is far off."""
    found = []
    for number, cut in enumerate(cut_windows(49, window=8, stride=4)):
        losses = torch.full((cut.stop - cut.start,), 1e6, dtype=torch.float64)
        losses[cut.first - 1 - cut.start :] = number
        original = losses + 10 if number != 4 else torch.full_like(losses, 3)
        found.append(WindowLosses(window=cut, model=losses, original=original))
    return found


def test_quantiles_are_those_of_the_scored_means() -> None:
    windows = _windows()
    assert len(windows) == 11
    spread = window_spread(windows, torch.arange(49), str, worst=2)
    assert spread.count == 11
    assert [one.model for one in spread.quantiles] == [0, 1, 5, 9, 10]
    assert [one.delta for one in spread.quantiles] == [-10, -10, -10, -10, 1]


def test_the_worst_lost_most_against_the_original() -> None:
    worst = window_spread(_windows(), torch.arange(100, 149), str, worst=2).worst
    assert (worst[0].start, worst[0].delta, worst[0].model, worst[0].against) == (16, 1, 4, 3)
    assert worst[0].first_token == "[116]"
    assert worst[0].text == str(list(range(116, 132)))
    assert worst[0].tokens == 4


def test_without_an_original_they_have_the_most_loss() -> None:
    alone = [WindowLosses(window=w.window, model=w.model, original=None) for w in _windows()]
    spread = window_spread(alone, torch.arange(49), str, worst=3)
    assert [one.start for one in spread.worst] == [40, 36, 32]
    assert spread.quantiles[2].against is spread.quantiles[2].delta is spread.worst[0].delta is None
