"""Windows, as positions only: what is scored, how often, and with how much before it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headcount.evaluate.windows import Window, cut_windows, resolve_window
from headcount.model.errors import HeadcountError

pytestmark = pytest.mark.needs_convert


@st.composite
def _cases(draw: st.DrawFn) -> tuple[int, int, int]:
    window = draw(st.integers(1, 40))
    return draw(st.integers(0, 200)), window, draw(st.integers(1, window))


@given(_cases())
def test_every_token_but_the_first_is_scored_once_with_enough_before_it(
    case: tuple[int, int, int],
) -> None:
    tokens, window, stride = case
    scored: list[int] = []
    for cut in cut_windows(tokens, window=window, stride=stride):
        assert 0 <= cut.start < cut.stop < tokens
        assert cut.stop - cut.start <= window
        for token in range(cut.first, cut.stop + 1):
            assert token - cut.start >= min(token, window - stride + 1)
            scored.append(token)
    assert scored == list(range(1, tokens))


def test_a_text_that_fits_is_one_window() -> None:
    assert cut_windows(9, window=8, stride=4) == (Window(start=0, stop=8, first=1),)


def test_one_token_more_needs_a_second_window() -> None:
    assert cut_windows(10, window=8, stride=4) == (
        Window(start=0, stop=8, first=1),
        Window(start=4, stop=9, first=9),
    )


def test_a_stride_of_the_window_tiles_the_text_and_leaves_no_token_out() -> None:
    assert cut_windows(9, window=4, stride=4) == (
        Window(start=0, stop=4, first=1),
        Window(start=4, stop=8, first=5),
    )


@pytest.mark.parametrize(
    ("window", "stride", "limits", "expected"),
    [
        (None, None, {}, (1024, 512)),
        (None, None, {"a": 512}, (512, 256)),
        (None, None, {"a": 8192, "b": 128}, (128, 64)),
        (100, None, {"a": 512}, (100, 50)),
        (1, None, {"a": 512}, (1, 1)),
        (2048, 2048, {}, (2048, 2048)),
    ],
)
def test_defaults(
    window: int | None, stride: int | None, limits: dict[str, int], expected: tuple[int, int]
) -> None:
    assert resolve_window(window, stride, limits) == expected


@pytest.mark.parametrize(
    ("window", "stride", "message"),
    [
        (513, None, r"b has 512 positions .*--window 512"),
        (0, None, "at least 1"),
        (64, 65, "between 1 and the window, 64"),
        (64, 0, "between 1 and the window, 64"),
    ],
)
def test_impossible_windows_are_refused(
    window: int | None, stride: int | None, message: str
) -> None:
    with pytest.raises(HeadcountError, match=message):
        resolve_window(window, stride, {"a": 2048, "b": 512})
