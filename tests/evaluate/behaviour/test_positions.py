"""Loss by position and the in-context score, on losses that say where they stand."""

import pytest
import torch

from headcount.evaluate.behaviour.positions import in_context_score, losses_by_position
from headcount.evaluate.loss import WindowLosses
from headcount.evaluate.windows import cut_windows

pytestmark = pytest.mark.needs_convert


def _windows(tokens: int, window: int, *, original: bool = True) -> list[WindowLosses]:
    """The loss of the token with n before it is n, and twice that by the original; a second
    window's are greater by 1,000."""
    found = []
    for number, cut in enumerate(cut_windows(tokens, window=window, stride=window)):
        places = torch.arange(1, cut.stop - cut.start + 1, dtype=torch.float64) + 1000 * number
        found.append(
            WindowLosses(window=cut, model=places, original=2 * places if original else None)
        )
    return found


def test_ranges_double_up_to_all_that_is_read() -> None:
    ranges = losses_by_position(_windows(13, 12))
    assert [(one.first, one.last) for one in ranges] == [(1, 1), (2, 3), (4, 7), (8, 12)]
    assert [one.model for one in ranges] == [1, 2.5, 5.5, 10]
    assert [one.against for one in ranges] == [2, 5, 11, 20]
    assert ranges[3].delta == -10


@pytest.mark.parametrize(
    ("most", "edges"), [(1, [(1, 1)]), (2, [(1, 2)]), (8, [(1, 1), (2, 3), (4, 8)])]
)
def test_no_range_is_a_rest(most: int, edges: list[tuple[int, int]]) -> None:
    ranges = losses_by_position(_windows(most + 1, most, original=False))
    assert [(one.first, one.last) for one in ranges] == edges
    assert sum(one.tokens for one in ranges) == most
    assert ranges[0].against is ranges[0].delta is None


def test_every_window_counts_as_far_as_it_reads() -> None:
    """The second window has 5 of 8 positions."""
    ranges = losses_by_position(_windows(14, 8))
    assert [one.tokens for one in ranges] == [2, 4, 5 + 2]
    assert ranges[2].model == (4 + 5 + 6 + 7 + 8 + 1004 + 1005) / 7


def test_the_score_takes_the_loss_at_500_less_at_50() -> None:
    score = in_context_score(_windows(601, 600), window=600)
    assert score is not None and not score.scaled
    assert (score.early, score.late, score.tokens) == ((45, 55), (450, 550), 101)
    assert (score.model, score.against) == (450, 900)


def test_shorter_windows_scale_it() -> None:
    score = in_context_score(_windows(56, 55, original=False), window=55)
    assert score is not None and score.scaled
    assert (score.early, score.late) == ((5, 5), (45, 55))
    assert (score.model, score.against) == (45, None)


def test_windows_that_are_too_short_give_none() -> None:
    assert in_context_score(_windows(5, 4), window=4) is None
    assert in_context_score(_windows(40, 600), window=600) is None  # the text ends before
