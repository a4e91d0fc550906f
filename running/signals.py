"""Leaving on Ctrl-C and its siblings: at once, or through the cleanup of what is being written."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

# How a signal leaves what `exit_cleanly` guards.
SIGNALLED = (KeyboardInterrupt, SystemExit)
# What a process that ends at once does before: folders are removed that it needs no more.
LAST_ACTS: list[Callable[[], object]] = []


@contextmanager
def on_signals(act: Callable[[int, Any], Any]) -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP go to `act` inside; one that is ignored (nohup) stays so."""
    found = {number: signal.getsignal(number) for number in _numbers()}
    before = {n: act for n, act in found.items() if act not in (signal.SIG_IGN, None)}
    try:
        _set(dict.fromkeys(before, act))
        yield
    finally:
        _set(before)


def _numbers() -> list[signal.Signals]:
    names = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows has no SIGHUP
    return [getattr(signal, name) for name in names if hasattr(signal, name)]


def _set(handlers: dict[signal.Signals, Any]) -> None:
    with suppress(ValueError):  # only the main thread may set handlers
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextmanager
def held_signals() -> Iterator[None]:
    """A signal that comes inside counts at the end: for cleanups, which nothing may cut short."""
    came: list[int] = []
    try:
        with on_signals(lambda number, _frame: came.append(number)):
            yield
    finally:
        for number in came[:1]:
            signal.raise_signal(number)


def exit_at_once(number: int, _frame: Any) -> None:
    """Ends the process with 128 + `number`, for when nothing is being written: libraries that are
    being imported catch an exception and go on."""
    _leave(number, "")


def exit_telling(remark: str) -> Callable[[int, Any], None]:
    """`exit_at_once` with a line on stderr about what holds."""
    return lambda number, _frame: _leave(number, f"{remark}\n")


def _leave(number: int, remark: str) -> NoReturn:
    try:
        _set(dict.fromkeys(_numbers(), _let_pass))
        for act in LAST_ACTS:
            act()
        said = ("Interrupted.\n" if number == signal.SIGINT else "") + remark
        if said:
            os.write(2, said.encode(errors="backslashreplace"))
    finally:
        os._exit(128 + number)


def _let_pass(_number: int, _frame: Any) -> None:
    """Does nothing."""


def exit_cleanly(number: int, _frame: Any) -> None:
    """Leaves through the same cleanup as an error, which further signals do not disturb."""
    # Not SIG_IGN: Python would write a traceback for one that has come in already.
    _set(dict.fromkeys(_numbers(), _let_pass))
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(128 + number)
