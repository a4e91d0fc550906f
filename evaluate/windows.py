"""Cutting a text into overlapping windows, so that every token is scored exactly once."""

from dataclasses import dataclass

from headcount.model.errors import HeadcountError

DEFAULT_WINDOW = 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """The model reads the tokens `[start, stop)`, and the tokens `first` to `stop` are scored.

    The position that reads token t - 1 predicts token t, so the last scored token is one past the
    last one read, and a window of n tokens gives n predictions.
    """

    start: int
    stop: int
    first: int


def cut_windows(tokens: int, *, window: int, stride: int) -> tuple[Window, ...]:
    """Windows over `tokens` tokens, `stride` apart, that score the tokens 1 to `tokens - 1`.

    Each is scored with all that its window holds before it: everything for the first `window`
    tokens, later at least `window - stride + 1` tokens. No window reads more than `window` tokens.
    """
    windows: list[Window] = []
    first = 1
    while first < tokens:
        start = len(windows) * stride
        stop = min(start + window, tokens - 1)
        windows.append(Window(start=start, stop=stop, first=first))
        first = stop + 1
    return tuple(windows)


def resolve_window(
    window: int | None, stride: int | None, limits: dict[str, int]
) -> tuple[int, int]:
    """The window and stride to use, in tokens. Raises HeadcountError.

    `limits` maps each model's name to its `max_position_embeddings`; models without one (ALiBi, no
    positions) are left out.
    """
    name, limit = min(limits.items(), key=lambda item: item[1], default=("", None))
    if window is None:
        window = DEFAULT_WINDOW if limit is None else min(limit, DEFAULT_WINDOW)
    if window < 1:
        raise HeadcountError(f"a window of {window} tokens: it takes at least 1")
    if limit is not None and window > limit:
        raise HeadcountError(
            f"a window of {window:,} tokens: {name} has {limit:,} positions"
            f" (max_position_embeddings); pass --window {limit} or less"
        )
    if stride is None:
        stride = max(window // 2, 1)
    if not 1 <= stride <= window:
        raise HeadcountError(
            f"a stride of {stride:,} tokens: it lies between 1 and the window, {window:,}"
        )
    return window, stride
