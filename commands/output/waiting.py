"""A word in a terminal while a command has nothing to say yet: imports, a search, a model that is
loaded. Whatever is printed takes its place."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import RLock, Timer

from headcount.running.signals import LAST_ACTS

_WORD = b"Working..."
_PATIENCE = 0.6  # seconds without a word


class _Word:
    """On the last line of stderr, where nothing else stands while it does."""

    def __init__(self) -> None:
        self._lock = RLock()  # a signal may come while it is held, and then take the word away
        self._is_over = self._stands = False

    def say(self) -> None:
        with self._lock, suppress(OSError):
            if not self._is_over:
                os.write(2, _WORD)
                self._stands = True

    def end(self) -> None:
        with self._lock, suppress(OSError):
            self._is_over = True
            if self._stands:
                self._stands = False
                os.write(2, b"\r" + b" " * len(_WORD) + b"\r")


_said: list[_Word] = []  # of the command that runs


@contextmanager
def waiting() -> Iterator[None]:
    """A word on stderr, if that is a terminal and nothing is printed inside before long."""
    if not sys.stderr.isatty():
        yield
        return
    word = _Word()
    timer = Timer(_PATIENCE, word.say)
    timer.daemon = True
    _said.append(word)
    LAST_ACTS.append(word.end)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        _said.remove(word)
        LAST_ACTS.remove(word.end)
        word.end()


def end_waiting() -> None:
    """Takes the word away, and says none any more: something is printed."""
    for word in _said:
        word.end()
