"""Waiting for many answers at the same time, and for one not too long."""

from collections.abc import Callable, Iterable
from typing import TypeVar, cast

from headcount.model import limits

from .connection.http_client import UnreachableError

T = TypeVar("T")
R = TypeVar("R")


def within(seconds: float, work: Callable[[], R], meanwhile: Callable[[], None] | None = None) -> R:
    """What `work` returns or raises, or UnreachableError when it takes longer. `meanwhile` is
    called while that waits."""
    from queue import Empty, SimpleQueue
    from threading import Thread

    done: SimpleQueue[tuple[R | None, Exception | None]] = SimpleQueue()

    def run() -> None:
        try:
            done.put((work(), None))
        except Exception as error:
            done.put((None, error))

    Thread(target=run, daemon=True).start()
    if meanwhile is not None:
        meanwhile()
    try:
        result, error = done.get(timeout=seconds)
    except Empty:
        raise UnreachableError(f"no answer in {seconds:.0f} seconds") from None
    if error is not None:
        raise error
    return cast("R", result)


def at_once(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """`work` of each item, in order, in threads. The first error stops what has not begun."""
    from concurrent.futures import ThreadPoolExecutor

    items = list(items)
    if not items:
        return []
    executor = ThreadPoolExecutor(max_workers=min(limits.REQUESTS_AT_ONCE.most, len(items)))
    try:
        return list(executor.map(work, items))
    finally:
        executor.shutdown(cancel_futures=True)


def patiently(fetch: Callable[[], R]) -> R:
    """One more try when a connection broke: among two hundred requests one does."""
    for _ in range(limits.ATTEMPTS.most - 1):
        try:
            return fetch()
        except UnreachableError:
            continue
    return fetch()
