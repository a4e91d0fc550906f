"""Leaving on Ctrl-C and its siblings: at once, or through the cleanup of what is being written."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any


@contextmanager
def on_signals(act: Callable[[int, Any], Any]) -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP go to `act` inside; one that is ignored (nohup) stays so."""
    names = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows has no SIGHUP
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = {n: handler for n in numbers if (handler := signal.getsignal(n)) != signal.SIG_IGN}
    with suppress(ValueError):  # only the main thread may set handlers
        for number in before:
            signal.signal(number, act)
    try:
        yield
    finally:
        with suppress(ValueError):
            for number, handler in before.items():
                signal.signal(number, handler)


def exit_at_once(number: int, _frame: Any) -> None:
    """Ends the process with 128 + `number`, for when nothing is being written: libraries that are
    being imported catch an exception and go on."""
    try:
        if number == 2:
            os.write(2, b"Interrupted.\n")
    finally:
        os._exit(128 + number)


def _let_pass(_number: int, _frame: Any) -> None:
    """Does nothing."""


def exit_cleanly(number: int, _frame: Any) -> None:
    """Leaves through the same cleanup as an error, which further signals do not disturb."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            # Not SIG_IGN: Python would write a traceback for one that has come in already.
            signal.signal(getattr(signal, name), _let_pass)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(128 + number)
